use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use tokio::time::timeout;

use crate::error::describe;
use crate::topology::Topology;
use crate::wire::Wire;

/// Channels that wait for the next batch.
const IDLE_MAX: usize = 16;

/// One life of a connection.
#[derive(Debug)]
pub struct Session {
    wire: Wire,
    idle: Mutex<Vec<Channel>>,
}

impl Session {
    pub fn new(wire: Wire) -> Self {
        Self { wire, idle: Mutex::default() }
    }

    pub fn connection(&self) -> &Connection {
        &self.wire.connection
    }

    pub fn is_connected(&self) -> bool {
        self.connection().status().connected()
    }

    pub fn cut(&self) {
        self.wire.cut();
    }

    /// A channel with confirms that nobody else uses: lapin hands a returned message to whichever confirm comes next on
    /// the channel, so only whoever knows all of them can tell which one it was.
    pub async fn channel(&self) -> lapin::Result<Channel> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(channel) = idle.filter(|channel| channel.status().connected()) {
            return Ok(channel);
        }
        let channel = self.connection().create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// With nothing outstanding on it.
    pub fn put_back(&self, channel: Channel) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(channel);
        }
    }

    /// Publishes something that comes back: the broker takes records and answers.
    ///
    /// It is also what makes a broker that is low on memory say so. It does only to those who have published.
    pub async fn probe(&self, topology: &Topology, within: Duration) -> Result<(), String> {
        let probing = async {
            let channel = self.channel().await?;
            let confirmed =
                publish(&channel, topology.exchange(), topology.nowhere(), b"", Default::default());
            let confirmed = confirmed.await?;
            self.put_back(channel);
            Ok(confirmed)
        };
        match timeout(within, probing).await {
            Ok(Ok(Confirmation::Nack(_))) => Err("it takes no records".to_owned()),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(describe(&error)),
            Err(_) => Err("it does not answer in time".to_owned()),
        }
    }
}

/// Written when first polled, and ready when confirmed. What no queue takes comes back with a confirm.
pub async fn publish(
    channel: &Channel,
    exchange: ShortString,
    key: ShortString,
    bytes: &[u8],
    properties: BasicProperties,
) -> lapin::Result<Confirmation> {
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    channel.basic_publish(exchange, key, options, bytes, properties).await?.await
}
