//! Connections made in the background, and rules put in force on them.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tidegate_domain::limits::{BucketsError, PolicyId, PolicyName, PolicyRule};
use tokio::time::{Instant, timeout};

use super::answer::{lists, peeked, texts};
use super::rules::{Ruled, Version, tokens};
use super::shared::{Shared, Wanted, strange};
use crate::link::describe;

/// For a first call and for rules, which no request waits for.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// How many changes of a policy an idle bucket is carried through exactly.
const VERSIONS_MAX: usize = 16;
pub const STRANGE: &str = "it gave a strange answer";
/// A rule as the script takes it that refills faster than anybody asks: a take under it always passes, and is written.
const PROBE: [&str; 8] = ["0 1000 1", "1", "0", "0", "1", "0", "1000", "60000"];

/// How often the rules of other gateways are looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(500);

/// Makes a new connection whenever there is none, and looks at Redis now and then while there is one. Runs for ever.
pub async fn run(shared: Arc<Shared>) {
    loop {
        while timeout(LOOK_PERIOD, shared.link.opened()).await.is_err() {
            shared.look().await;
        }
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
        self.charge_debts(connection.clone()).await?;
        self.link.close(connection);
        Ok(())
    }

    /// Rules that another gateway has put in force count here, whether or not a request meets one of its buckets. What
    /// single calls owe that were not answered in time is charged, too.
    async fn look(&self) {
        let key = self.changed_key();
        let get = async |mut connection| redis::cmd("GET").arg(&key).query_async(&mut connection).await;
        let Some(changed) = self.link.aside::<Option<String>>(PATIENCE, get).await else { return };
        let _turn = self.turn.lock().await;
        if changed.as_ref() != Some(&*self.changed.lock().unwrap_or_else(PoisonError::into_inner)) {
            self.put_in_force().await;
        }
        let owes = !self.debts.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if let Some(connection) = self.link.current().filter(|_| owes)
            && let Err(why) = self.charge_debts(connection).await
        {
            tracing::debug!(why, "what was let pass without Redis could not be charged yet");
        }
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
            self.wanted.lock().unwrap_or_else(PoisonError::into_inner).wanted_now();
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
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner).wanted_now();
        let since_us = match wanted.since.filter(|_| !wanted.told) {
            Some(since) => self.by_its_clock(connection.clone(), since).await?,
            None => 0,
        };
        let (keys, args) = self.to_configure(&wanted, since_us);
        let mut rules = Vec::new();
        let asking = self.scripts.configure.call(connection, &keys, &args);
        let answer = timeout(self.call_timeout.max(PATIENCE), asking).await;
        let answer = answer.map_err(|_| "it does not answer in time")?.map_err(|error| describe(&error))?;
        let mut lists = lists(answer).ok_or(STRANGE)?.into_iter();
        let changed = lists.next().and_then(|list| list.into_iter().next()).ok_or(STRANGE)?;
        for (policy, list) in wanted.rules.iter().zip(lists) {
            let ruled = ruled(policy, &list).ok_or(STRANGE)?;
            let known = self.rule(policy.id).filter(|_| wanted.told);
            if known.is_some_and(|known| known.number() < ruled.number()) {
                tracing::info!(policy = %policy.name, "another gateway has put a newer rule in force");
            }
            put(&mut rules, policy.id, ruled);
        }
        self.rules.store(Arc::new(rules));
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = changed;
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.told = true;
        Ok(())
    }

    /// The microsecond of a past moment, or the time of one answer earlier.
    async fn by_its_clock(&self, connection: MultiplexedConnection, past: Instant) -> Result<u64, String> {
        let keys = [format!("{{{}}}:probe", self.prefix)];
        let asking = self.scripts.peek.call(connection, &keys, &[""; 0]);
        let answer = timeout(self.call_timeout.max(PATIENCE), asking).await;
        let answer = answer.map_err(|_| "it does not answer in time")?.map_err(|error| describe(&error))?;
        let (now_ns, _) = peeked(answer).ok_or(STRANGE)?;
        let age_ns = u64::try_from(past.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok((now_ns.saturating_sub(age_ns) / 1_000).max(1))
    }

    /// The keys and arguments of configure.lua.
    fn to_configure(&self, wanted: &Wanted, since_us: u64) -> (Vec<String>, Vec<String>) {
        let (mut keys, mut args) =
            (vec![self.changed_key()], vec![VERSIONS_MAX.to_string(), since_us.to_string()]);
        let known = self.rules.load();
        for PolicyRule { name, rule, .. } in &wanted.rules {
            keys.push(self.rule_key(name));
            args.push(if wanted.told { String::new() } else { tokens(rule) });
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

    /// No policy has a colon in its name.
    fn changed_key(&self) -> String {
        format!("{{{}}}:rule::changed", self.prefix)
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
