use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::metadata::MetadataTopic;
use rdkafka::{Offset, TopicPartitionList};
use tidegate_domain::BusError;

use crate::client::{Events, bus_error, settings};
use crate::options::Options;
use crate::standing::Standing;

const MADE_WITHIN: Duration = Duration::from_secs(3);

/// What Kafka says of a topic.
pub enum Topic {
    /// Each of so many partitions has a leader.
    Led(i32),
    Missing,
    Troubled(BusError),
}

impl Topic {
    pub fn of(said: &MetadataTopic) -> Self {
        let name = said.name();
        match said.error().map(Code::from) {
            None => {}
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => return Self::Missing,
            Some(code) => return Self::Troubled(bus_error(Some(code), &format!("the topic {name}"), &code)),
        }
        match said.partitions().iter().find(|partition| partition.leader() < 0) {
            None => Self::Led(i32::try_from(said.partitions().len()).unwrap_or(i32::MAX)),
            Some(partition) => {
                let text = format!("partition {} of the topic {name} has no leader", partition.id());
                Self::Troubled(BusError::Away(text))
            }
        }
    }
}

/// What is in the way of using a topic, as its leaders tell: the others know of it a little earlier than they.
pub fn ask_leaders(
    client: &BaseConsumer<Events>,
    name: &str,
    partitions: i32,
    within: Duration,
) -> Option<BusError> {
    let mut times = TopicPartitionList::new();
    (0..partitions).for_each(|partition| _ = times.add_partition(name, partition));
    let since_ever = times.set_all_offsets(Offset::Offset(0));
    let answers = since_ever.and_then(|()| client.offsets_for_times(times, within));
    let each = |answers: TopicPartitionList| answers.elements().iter().try_for_each(|of| of.error());
    let error = answers.and_then(each).err()?;
    Some(BusError::Away(format!("the topic {name}: {error}")))
}

/// Makes topics that are missing. For each, what is in the way; nothing when it is there now, whoever made it.
pub async fn make(
    names: &[String],
    options: &Options,
    standing: &Arc<Standing>,
) -> Vec<(String, Option<BusError>)> {
    let result = ask(names, options, standing).await;
    let trouble = |name: &String| match &result {
        Err(error) => Some(cannot(name, error.rdkafka_error_code(), error)),
        Ok(results) => results.iter().find_map(|result| match result {
            Err((of, Code::TopicAlreadyExists)) if of == name => None,
            Err((of, code)) if of == name => Some(cannot(name, Some(*code), code)),
            _ => None,
        }),
    };
    names.iter().map(|name| (name.clone(), trouble(name))).collect()
}

async fn ask(
    names: &[String],
    options: &Options,
    standing: &Arc<Standing>,
) -> rdkafka::error::KafkaResult<Vec<rdkafka::admin::TopicResult>> {
    let admin: AdminClient<Events> = settings(options).create_with_context(Events(standing.clone()))?;
    let replicas = options.replication.map_or(-1, i32::from);
    let topic = |name| NewTopic::new(name, i32::from(options.partitions), TopicReplication::Fixed(replicas));
    let topics: Vec<_> = names.iter().map(|name| topic(name.as_str())).collect();
    let patience =
        AdminOptions::new().request_timeout(Some(MADE_WITHIN)).operation_timeout(Some(MADE_WITHIN));
    admin.create_topics(&topics, &patience).await
}

fn cannot(name: &str, code: Option<Code>, error: &dyn std::fmt::Display) -> BusError {
    bus_error(code, &format!("the topic {name} is missing and can't be made"), error)
}
