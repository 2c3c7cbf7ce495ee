use std::sync::mpsc::{Sender, channel};

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use super::backend::Backend;

type Cluster = MockCluster<'static, DefaultProducerContext>;
type Wish = Box<dyn FnOnce(&Cluster) + Send>;

/// The client's own imitation of a Kafka, in this process. It stays with the thread that made it.
#[derive(Debug)]
pub struct Mock {
    servers: String,
    wishes: Sender<Wish>,
}

impl Mock {
    /// With these topics: it does not make any when asked to.
    fn start(topics: Vec<String>) -> Self {
        let (wishes, wished) = channel::<Wish>();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let cluster = MockCluster::new(1).expect("a mock cluster");
            for topic in topics {
                cluster.create_topic(&topic, 4, 1).expect("a topic");
            }
            tell.send(cluster.bootstrap_servers()).expect("somebody listens");
            wished.into_iter().for_each(|wish| wish(&cluster));
        });
        Self { servers: told.recv().expect("a mock cluster"), wishes }
    }

    /// Ready to be used.
    pub fn with_backend() -> (Self, Backend) {
        let backend = Backend::new(String::new());
        let mock = Self::start(backend.options().routes.names());
        let servers = mock.servers.clone();
        (mock, Backend { servers, ..backend })
    }

    /// Done when this returns.
    pub fn with(&self, wish: impl FnOnce(&Cluster) + Send + 'static) {
        let (tell, told) = channel();
        let wish = move |cluster: &Cluster| {
            wish(cluster);
            tell.send(()).expect("somebody listens");
        };
        self.wishes.send(Box::new(wish)).expect("the mock cluster is there");
        told.recv().expect("the mock cluster is there");
    }
}
