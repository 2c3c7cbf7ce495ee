use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, ServerErrorKind, ToRedisArgs, Value};

/// A script of ours, named on the wire by its hash.
#[derive(Debug)]
pub struct Script {
    code: String,
    hash: String,
}

/// Where a script takes its time from. All scripts ask one function, so this is the only thing that tests replace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Time {
    /// Redis' own clock: one for all gateways, whatever theirs say.
    #[default]
    Server,
    /// A key that holds seconds and nanoseconds, for tests.
    Key(String),
}

impl Script {
    /// `body` may call `now()`, which returns whole seconds and the nanoseconds of the running one.
    pub fn new(time: &Time, body: &str) -> Self {
        let now = match time {
            Time::Server => {
                "local t = redis.call('TIME') return tonumber(t[1]), tonumber(t[2]) * 1000".to_owned()
            }
            Time::Key(key) => format!(
                "local s, ns = string.match(redis.call('GET', '{key}'), '(%d+) (%d+)') return tonumber(s), tonumber(ns)"
            ),
        };
        let code = format!("local function now() {now} end\n{body}");
        let hash = redis::Script::new(&code).get_hash().to_owned();
        Self { code, hash }
    }

    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// By its hash, and with its text where Redis does not know it: after a restart, a failover or SCRIPT FLUSH.
    pub async fn call<K: ToRedisArgs, A: ToRedisArgs>(
        &self,
        mut connection: MultiplexedConnection,
        keys: &[K],
        args: &[A],
    ) -> RedisResult<Value> {
        match command("EVALSHA", &self.hash, keys, args).query_async(&mut connection).await {
            Err(error) if error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript) => {
                command("EVAL", &self.code, keys, args).query_async(&mut connection).await
            }
            answered => answered,
        }
    }
}

fn command<K: ToRedisArgs, A: ToRedisArgs>(name: &str, script: &str, keys: &[K], args: &[A]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(keys.len());
    for key in keys {
        command.arg(key);
    }
    for arg in args {
        command.arg(arg);
    }
    command
}
