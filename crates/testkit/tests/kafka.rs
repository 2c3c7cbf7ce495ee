//! The private Kafka does what the tests that use it count on.

use std::net::TcpStream;

use tidegate_testkit::services::{Kafka, KafkaOptions, NoKafka};

/// None where Maven Central can't be reached: then it says so.
fn kafka(options: &KafkaOptions) -> Option<Kafka> {
    match Kafka::start_with(options) {
        Err(error) if error.is::<NoKafka>() => {
            println!("left out: {error:#}");
            None
        }
        started => Some(started.expect("a private Kafka")),
    }
}

#[test]
fn a_kafka_is_killed_frozen_and_restarted_on_its_port() {
    let Some(mut kafka) = kafka(&KafkaOptions::default()) else { return };
    kafka.stop().unwrap();
    kafka.resume().unwrap();
    kafka.kill().unwrap();
    assert!(TcpStream::connect(kafka.address).is_err());
    kafka.restart().unwrap();
    assert!(TcpStream::connect(kafka.address).is_ok());
    let address = kafka.address;
    drop(kafka);
    assert!(TcpStream::connect(address).is_err(), "it outlives whoever dropped it");
}

#[test]
fn a_kafka_may_want_a_login() {
    let users = vec![("alice".to_owned(), "open sesame".to_owned())];
    let Some(kafka) = kafka(&KafkaOptions { users, ..KafkaOptions::default() }) else { return };
    assert!(TcpStream::connect(kafka.address).is_ok(), "{}", kafka.log());
}

#[test]
fn a_kafka_that_cannot_start_says_why() {
    let settings = vec![("num.io.threads".to_owned(), "none".to_owned())];
    if kafka(&KafkaOptions::default()).is_none() {
        return;
    }
    let error = Kafka::start_with(&KafkaOptions { settings, ..KafkaOptions::default() }).unwrap_err();
    assert!(format!("{error:#}").contains("num.io.threads"), "{error:#}");
}
