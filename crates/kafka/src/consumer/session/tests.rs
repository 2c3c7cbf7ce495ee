use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use tidegate_bus::Routes;
use tidegate_domain::QueueName;
use tidegate_testkit::HANG;

use super::super::member::{group_settings, start};
use super::*;
use crate::options::Options;
use crate::standing::Standing;

/// What a session needs, for as long as the process lives: a session that does not end must not keep the test from ending.
fn joined(cluster: &MockCluster<'static, DefaultProducerContext>) -> Session<'static> {
    let queue = QueueName::new("sms").unwrap();
    let routes = Routes::new([(queue.clone(), "sms-outbound".to_owned())]);
    routes.names().iter().for_each(|topic| cluster.create_topic(topic, 1, 1).unwrap());
    let topics = Lane::ALL.into_iter().filter_map(|lane| Some((lane, routes.name(&queue, lane)?))).collect();
    let options = Options::new(cluster.bootstrap_servers(), routes);
    let standing = Box::leak(Box::new(Arc::new(Standing::new(None, crate::reason::Encryption::Off))));
    let watch = Box::leak(Box::new(Watch::start(&options, standing, Arc::default()).unwrap()));
    let places = Box::leak(Box::new(Places { queue: queue.clone(), topics }));
    let desk = Box::leak(Box::new(Desk::default()));
    let client = start(&group_settings(&options, &queue), standing).unwrap();
    let mut session = Session::join(client, places, desk, standing, watch).unwrap();
    let deadline = Instant::now() + HANG;
    while session.partitions.is_empty() {
        assert!(Instant::now() < deadline, "no partition within {HANG:?}");
        session.serve(&mut Strange::new("sms".to_owned()));
        std::thread::sleep(Duration::from_millis(5));
    }
    session
}

/// A group that goes on while a member takes its partitions refuses them. A member that is left as it is then is subscribed,
/// well by its heartbeats, and without a record. One that is dropped with its partitions never ends: the client
/// waits for them to be given back, unless its error is a fatal one.
#[test]
fn a_member_whose_partitions_are_refused_ends_and_tells_why() {
    let cluster = MockCluster::new(1).unwrap();
    let session = joined(&cluster);
    assert_eq!(session.broken, None);
    // What is there already can't be taken once more.
    let mut again = TopicPartitionList::new();
    session.partitions.keys().for_each(|place| {
        let (_, topic) = &session.places.topics[place.lane.index()];
        again.add_partition(topic, place.partition);
    });
    session.client.context().tell(Happening::Assigned(again));
    let desk = session.desk;
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (left, _) = std::sync::mpsc::sync_channel(1);
        let end = session.run(&mut Strange::new("sms".to_owned()), &left);
        let _ = tell.send(matches!(end, End::Broken(_)));
    });
    assert_eq!(told.recv_timeout(HANG), Ok(true), "it ends, for another one to join in its place");
    assert!(matches!(desk.trouble(), Some(BusError::Away(_))));
}
