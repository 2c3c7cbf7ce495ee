use tidegate_domain::{Bus, BusError, BusHealth};
use tidegate_kafka::{KafkaBus, Login, Mechanism, Options};
use tidegate_testkit::bus::queue;
use tidegate_testkit::services::KafkaOptions;

use super::backend::Backend;
use super::{claims, in_time, kafka, receive_all, until, until_ready};

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_refused_is_told_and_a_right_one_works() {
    let users = vec![("alice".to_owned(), "open sesame".to_owned())];
    let Some(kafka) = kafka(&KafkaOptions { users, ..KafkaOptions::default() }) else { return };
    let backend = Backend::new(kafka.bootstrap());
    let with = |password: &str| {
        let (user, password) = ("alice".to_owned(), password.to_owned());
        let login = Login { mechanism: Mechanism::Plain, user, password };
        Options { login: Some(login), publish_ms: 3_000, open_ms: 3_000, ..backend.options() }
    };

    let bus = KafkaBus::open(with("open barley")).await.unwrap();
    let health = until(&bus, "it says why", |health| format!("{health:?}").contains("is refused")).await;
    assert!(matches!(&health, BusHealth::Away(why) if why.contains("\"alice\"")), "{health:?}");
    println!("{health:?}");
    let results = in_time("an answer", bus.publish(claims(0..1))).await;
    assert!(matches!(&results[..], [Err(BusError::Refused(why))] if why.contains("alice")), "{results:?}");
    assert!(!format!("{results:?} {bus:?}").contains("barley"));
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    let received = in_time("an answer", consumer.receive(1, 50)).await;
    assert!(matches!(received, Err(BusError::Refused(_))), "{received:?}");

    let bus = KafkaBus::open(with("open sesame")).await.unwrap();
    until_ready(&bus).await;
    assert_eq!(in_time("a record is confirmed", bus.publish(claims(0..1))).await, [Ok(())]);
    receive_all(&mut *bus.consumer(queue("sms")).await.unwrap(), claims(0..1)).await;

    let bus =
        KafkaBus::open(Options { publish_ms: 3_000, open_ms: 3_000, ..backend.options() }).await.unwrap();
    until(&bus, "it guesses why", |health| format!("{health:?}").contains("want another login")).await;
}
