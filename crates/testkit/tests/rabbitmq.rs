//! The private RabbitMQ does what the tests that use it count on.

use std::net::TcpStream;

use tidegate_testkit::services::RabbitMq;

#[test]
fn a_rabbitmq_is_killed_and_restarted_with_what_it_has_and_leaves_nobody_behind() {
    let mut rabbitmq = RabbitMq::start().unwrap();
    rabbitmq.ctl(&["add_vhost", "kept"]).unwrap();
    rabbitmq.kill().unwrap();
    assert!(TcpStream::connect(rabbitmq.address).is_err());
    assert!(rabbitmq.ctl(&["list_vhosts"]).is_err());
    rabbitmq.restart().unwrap();
    let vhosts = rabbitmq.ctl(&["list_vhosts"]).unwrap();
    assert!(vhosts.lines().any(|name| name == "kept"), "{vhosts}");

    rabbitmq.alarm(true).unwrap();
    let alarms = rabbitmq.ctl(&["eval", "rabbit_alarm:get_alarms()."]).unwrap();
    assert!(alarms.contains("memory"), "{alarms}");
    rabbitmq.alarm(false).unwrap();
    let alarms = rabbitmq.ctl(&["eval", "rabbit_alarm:get_alarms()."]).unwrap();
    assert!(!alarms.contains("memory"), "{alarms}");

    let addresses = rabbitmq.addresses();
    for address in addresses {
        assert!(TcpStream::connect(address).is_ok(), "{address}");
    }
    drop(rabbitmq);
    for address in addresses {
        assert!(TcpStream::connect(address).is_err(), "{address}");
    }
}
