use tidegate_domain::Bus as _;
use tidegate_testkit::bus::queue;

use crate::backend::RabbitBackend;

/// A cancellation that reaches RabbitMQ on a channel that is closed already makes it end the connection of all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_that_leave_take_nobody_with_them() {
    let bus = RabbitBackend::shared().bus().await;
    for n in 0..100 {
        let joined = bus.consumer(queue("sms")).await;
        drop(joined.unwrap_or_else(|error| panic!("after {n} consumers: {error}")));
    }
}
