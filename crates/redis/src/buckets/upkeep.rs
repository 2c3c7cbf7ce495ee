//! Connections made in the background, and rules put in force on them.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tidegate_domain::limits::{BucketsError, PolicyId, PolicyName, PolicyRule};
use tokio::time::{Instant, timeout};

use super::answer::{lists, texts};
use super::rules::{Ruled, Version, tokens};
use super::shared::{Shared, Wanted, strange};
use crate::link::describe;

/// For a first call and for rules, which no request waits for.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many changes of a policy an idle bucket is carried through exactly.
const VERSIONS_MAX: usize = 16;
/// A rule as the script takes it that refills faster than anybody asks: a take under it always passes, and is written.
const PROBE: [&str; 8] = ["0 1000 1", "1", "0", "0", "1", "0", "1000", "60000"];

/// Makes a new connection whenever there is none. Runs for ever.
pub async fn run(shared: Arc<Shared>) {
    loop {
        shared.link.opened().await;
        shared.link.restore(|| shared.reconnect()).await;
    }
}

impl Shared {
    pub async fn first_connection(&self) {
        self.link.first(self.reconnect()).await;
    }

    /// A connection counts when it has answered a take in time, as requests will want it to, and knows the rules.
    async fn reconnect(&self) -> Result<(), String> {
        let connection = self.link.connect().await?;
        // The first call brings the script along; only the second has to be fast.
        self.probe(&connection, self.call_timeout.max(PATIENCE)).await?;
        self.probe(&connection, self.call_timeout).await?;
        let _turn = self.turn.lock().await;
        self.configure(connection.clone()).await?;
        self.link.close(connection);
        Ok(())
    }

    async fn probe(&self, connection: &MultiplexedConnection, within: Duration) -> Result<(), String> {
        let key = format!("{{{}}}:probe", self.prefix);
        match timeout(within, self.scripts.take.call(connection.clone(), &[key], &PROBE)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                self.link.redirected(&error);
                Err(describe(&error))
            }
            Err(_) => Err("it does not answer in time".to_owned()),
        }
    }

    /// On the connection in use, if there is one; otherwise the next connection does it. Whoever calls has the turn.
    pub async fn put_in_force(&self) {
        if self.link.is_away() {
            return;
        }
        let deadline = Instant::now() + self.call_timeout.max(PATIENCE);
        let configured =
            self.link.call(deadline, async |connection| Ok(self.configure(connection).await)).await;
        if let Ok(Err(why)) = configured {
            // Nobody may take under the old rules.
            self.link.open(&why);
        } else if configured.is_err() {
            self.link.open("it did not take the rules");
        }
    }

    async fn configure(&self, connection: MultiplexedConnection) -> Result<(), String> {
        // Whoever has the turn is the only one to change it.
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (keys, args) = self.to_configure(&wanted);
        let mut rules = Vec::new();
        if !keys.is_empty() {
            let asking = self.scripts.configure.call(connection, &keys, &args);
            let answer = timeout(self.call_timeout.max(PATIENCE), asking).await;
            let answer =
                answer.map_err(|_| "it does not answer in time")?.map_err(|error| describe(&error))?;
            let lists = lists(answer).ok_or("it gave a strange answer")?;
            for (policy, list) in wanted.rules.iter().zip(lists) {
                let ruled = ruled(policy, &list).ok_or("it gave a strange answer")?;
                put(&mut rules, policy.id, ruled);
            }
        }
        self.rules.store(Arc::new(rules));
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.gone.clear();
        wanted.told = true;
        Ok(())
    }

    /// The keys and arguments of configure.lua.
    fn to_configure(&self, wanted: &Wanted) -> (Vec<String>, Vec<String>) {
        let (mut keys, mut args) = (Vec::new(), vec![VERSIONS_MAX.to_string()]);
        let rules = wanted.rules.iter().map(|policy| (&policy.name, tokens(Some(&policy.rule))));
        let gone = wanted.gone.iter().map(|name| (name, tokens(None)));
        let known = self.rules.load();
        for (name, rule) in rules.chain(gone) {
            keys.push(self.rule_key(name));
            args.push(if wanted.told { String::new() } else { rule });
            let known = known.iter().flatten().find(|ruled| ruled.policy.name == *name);
            args.push(known.map_or_else(String::new, |ruled| ruled.newest().text()));
        }
        (keys, args)
    }

    /// Another gateway has put a newer rule in force: it counts here, too.
    pub async fn learn(
        &self,
        policy: PolicyId,
        deadline: Instant,
    ) -> Result<Option<Arc<Ruled>>, BucketsError> {
        let Some(known) = self.rule(policy) else { return Ok(None) };
        let key = self.rule_key(&known.policy.name);
        let list = async |mut connection| {
            redis::cmd("LRANGE").arg(&key).arg(0).arg(-1).query_async(&mut connection).await
        };
        let list = texts(self.link.call(deadline, list).await?).ok_or_else(strange)?;
        let Some(newer) = ruled(&known.policy, &list) else { return Ok(Some(known)) };
        if newer.number() <= known.number() {
            return Ok(Some(known));
        }
        tracing::info!(policy = %known.policy.name, "another gateway has put a newer rule in force");
        let newer = Arc::new(newer);
        self.rules.rcu(|rules| {
            let mut rules = Vec::clone(rules);
            // Unless a reload came between.
            if let Some(place @ Some(_)) = rules.get_mut(policy.0 as usize)
                && place.as_ref().is_some_and(|now| Arc::ptr_eq(now, &known))
            {
                *place = Some(newer.clone());
            }
            rules
        });
        Ok(Some(newer))
    }

    fn rule_key(&self, name: &PolicyName) -> String {
        format!("{{{}}}:rule:{name}", self.prefix)
    }
}

fn ruled(policy: &PolicyRule, list: &[String]) -> Option<Ruled> {
    Ruled::new(policy, list.iter().map(|text| Version::parse(text)).collect::<Option<_>>()?)
}

fn put(rules: &mut Vec<Option<Arc<Ruled>>>, policy: PolicyId, ruled: Ruled) {
    let place = policy.0 as usize;
    if rules.len() <= place {
        rules.resize(place + 1, None);
    }
    rules[place] = Some(Arc::new(ruled));
}
