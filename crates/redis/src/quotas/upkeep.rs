//! Connections made in the background, and changes that Redis could not be told of at once.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult};
use tidegate_domain::UserId;
use tokio::time::{Instant, sleep, timeout};

use super::{Shared, scripts};
use crate::link::describe;

/// For a first call and for changes, which no request waits for.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);
/// Changes told in one go.
const CHUNK: usize = 500;

const SEVERAL_NODES: &str = "it is a Redis Cluster of several nodes; quotas need one that serves all slots";

/// Makes a new connection whenever there is none, and tells of changes. Runs for ever.
pub async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = shared.link.opened() => shared.link.restore(|| shared.reconnect()).await,
            () = shared.changes.woken() => {}
        }
        if !shared.link.is_away() && shared.tell_changes().await.is_err() {
            sleep(PAUSE).await;
            shared.changes.wake();
        }
    }
}

impl Shared {
    pub async fn first_connection(&self) {
        self.link.first(self.reconnect()).await;
    }

    /// A connection counts when it has answered in time, as requests will want it to, and knows of all changes.
    async fn reconnect(&self) -> Result<(), String> {
        let patience = self.call_timeout.max(PATIENCE);
        let connection = self.link.connect().await?;
        if within(patience, nodes(connection.clone())).await?.is_some_and(|nodes| nodes > 1) {
            return Err(SEVERAL_NODES.to_owned());
        }
        // The first call brings the script along; only the second has to be fast.
        within(patience, self.scripts.probe(connection.clone())).await?;
        within(self.call_timeout, self.scripts.probe(connection.clone())).await?;
        for chunk in self.changes.all().chunks(CHUNK) {
            within(patience, scripts::forget(connection.clone(), &users(chunk))).await?;
            self.changes.done(chunk);
        }
        self.link.close(connection);
        Ok(())
    }

    /// On the connection in use.
    async fn tell_changes(&self) -> Result<(), ()> {
        for chunk in self.changes.all().chunks(CHUNK) {
            let deadline = Instant::now() + self.call_timeout.max(PATIENCE);
            let users = users(chunk);
            let forget = async |connection| scripts::forget(connection, &users).await;
            self.link.call(deadline, forget).await.map_err(drop)?;
            self.changes.done(chunk);
        }
        Ok(())
    }
}

async fn within<T>(time: Duration, asking: impl Future<Output = RedisResult<T>>) -> Result<T, String> {
    match timeout(time, asking).await {
        Ok(answer) => answer.map_err(|error| describe(&error)),
        Err(_) => Err("it does not answer in time".to_owned()),
    }
}

/// Masters that serve slots, in a Redis Cluster.
async fn nodes(mut connection: MultiplexedConnection) -> RedisResult<Option<usize>> {
    let said: RedisResult<String> = redis::cmd("CLUSTER").arg("INFO").query_async(&mut connection).await;
    match said {
        Ok(said) => Ok(said.lines().find_map(|line| line.trim().strip_prefix("cluster_size:")?.parse().ok())),
        Err(error) if RedisError::is_unrecoverable_error(&error) => Err(error),
        // Not a cluster, or nobody who may ask.
        Err(_) => Ok(None),
    }
}

fn users(changes: &[(UserId, u64)]) -> Vec<UserId> {
    changes.iter().map(|(user, _)| user.clone()).collect()
}
