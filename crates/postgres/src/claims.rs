use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tidegate_domain::{Claim, LedgerError, Outcome, QueueName, Recipient, Settlement, Timestamp, UserId};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::batch::Operation as _;
use crate::codes::{checksum, duration, headers, lane};
use crate::error::Access;
use crate::open::Core;
use crate::settle::{Settlements, Step};

/// When there was less than somebody asked for, nobody looks again so soon, unless something has come or he can't wait.
const REST: Duration = Duration::from_millis(25);
/// A queue that nobody has asked for in this time has no line any more.
const IDLE: Duration = Duration::from_secs(30);
/// What one round trip takes at the most: messages come with their bodies. Below the places of a token.
pub const TAKEN_MAX: usize = 1_000;

/// How often a pop begins anew because of messages that can't be read.
const BURIALS_MAX: usize = 10;

/// Who stands in one queue's line, and who may wait to get in.
pub const ASKS_MAX: usize = 4_096;

/// How messages are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    Lease {
        lease_ms: u64,
    },
    /// For the way to whoever begins the attempt, where there may be so many at a time.
    Transit {
        lease_ms: u64,
        in_transit_max: usize,
    },
    ForGood,
}

#[derive(Debug)]
pub struct Ask {
    pub taking: Taking,
    pub max: usize,
    pub deadline: Instant,
    pub answer: oneshot::Sender<Result<Vec<Claim>, LedgerError>>,
}

/// Those of this process who ask for messages of one queue: served in the order they came, many by one round trip,
/// and only one of them looks while all wait.
#[derive(Debug)]
pub struct Line {
    core: Arc<Core>,
    queue: QueueName,
    asks: VecDeque<Ask>,
    /// Whose turn it is among the lanes.
    streak: i32,
    lowest: bool,
    /// When somebody looks again, though nothing has come.
    rested_at: Instant,
}

impl Line {
    pub fn new(core: Arc<Core>, queue: QueueName) -> Self {
        Self { core, queue, asks: VecDeque::new(), streak: 0, lowest: false, rested_at: Instant::now() }
    }

    pub async fn run(mut self, mut incoming: mpsc::Receiver<Ask>, woken: Arc<Notify>) {
        loop {
            while self.asks.len() < ASKS_MAX
                && let Ok(ask) = incoming.try_recv()
            {
                self.asks.push_back(ask);
            }
            if self.asks.is_empty() {
                match timeout(IDLE, incoming.recv()).await {
                    Ok(Some(ask)) => self.asks.push_back(ask),
                    Ok(None) => return,
                    Err(_) if self.core.wakes.retire(&self.queue, &mut incoming) => return,
                    Err(_) => {}
                }
                continue;
            }
            let next_look = if self.rests() {
                self.rested_at
            } else {
                // What has come until now is found by this look.
                let _ = woken.notified().now_or_never();
                let all_served = self.serve().await;
                self.dismiss();
                if self.asks.is_empty() || !all_served {
                    continue;
                }
                let poll = Instant::now() + self.core.options.poll;
                self.asks.iter().map(|ask| ask.deadline).fold(poll, Instant::min)
            };
            tokio::select! {
                ask = incoming.recv(), if self.asks.len() < ASKS_MAX => match ask {
                    Some(ask) => self.asks.push_back(ask),
                    None => return,
                },
                () = woken.notified() => self.rested_at = Instant::now(),
                () = sleep_until(next_look) => self.rested_at = Instant::now(),
            }
        }
    }

    fn rests(&self) -> bool {
        self.rested_at > Instant::now() && self.asks.iter().all(|ask| ask.deadline > self.rested_at)
    }

    /// One round trip for each way of taking. False when there may be more to take at once.
    async fn serve(&mut self) -> bool {
        // Whoever gave up takes nothing.
        self.asks.retain(|ask| !ask.answer.is_closed());
        let mut ways: Vec<Taking> = Vec::new();
        for ask in &self.asks {
            if !ways.contains(&ask.taking) {
                ways.push(ask.taking);
            }
        }
        let mut all_served = true;
        for taking in ways {
            let wanted: usize = self.asks.iter().filter(|ask| ask.taking == taking).map(|ask| ask.max).sum();
            let max = wanted.min(TAKEN_MAX);
            let result = if max == 0 { Ok(Vec::new()) } else { self.take(taking, max).await };
            match result {
                Ok(claims) => {
                    let cut = claims.len() < max && self.may_be_cut(&claims);
                    all_served &= !cut && (claims.len() < max || wanted == max);
                    if claims.len() < max && !cut {
                        self.rested_at = Instant::now() + REST;
                    }
                    self.hand_out(taking, claims);
                }
                Err(error) => self.refuse(taking, &error),
            }
        }
        if !all_served {
            self.rested_at = Instant::now();
        }
        all_served
    }

    async fn take(&mut self, taking: Taking, max: usize) -> Result<Vec<Claim>, LedgerError> {
        let max = i32::try_from(max).unwrap_or(i32::MAX);
        let (queue, bytes_max) = (self.queue.as_str(), self.bytes_max());
        let (share, attempts_max) = (self.share(), self.core.options.attempts_max(&self.queue));
        let rows = match taking {
            Taking::Lease { lease_ms } => {
                let sql = "SELECT * FROM claim($1, $2, $3, $4, $5, NULL, $6, $7, $8)";
                let lease_ms = duration(lease_ms);
                let params: [&(dyn ToSql + Sync); 8] =
                    [&queue, &max, &lease_ms, &self.streak, &self.lowest, &bytes_max, &share, &attempts_max];
                self.core.write(sql, &params).await?
            }
            Taking::Transit { lease_ms, in_transit_max } => {
                let sql = "SELECT * FROM claim($1, $2, $3, $4, $5, $6, $7, $8, $9)";
                let (lease_ms, room) =
                    (duration(lease_ms), i32::try_from(in_transit_max).unwrap_or(i32::MAX));
                let params: [&(dyn ToSql + Sync); 9] = [
                    &queue,
                    &max,
                    &lease_ms,
                    &self.streak,
                    &self.lowest,
                    &room,
                    &bytes_max,
                    &share,
                    &attempts_max,
                ];
                self.core.write(sql, &params).await?
            }
            Taking::ForGood => self.pop(max).await?,
        };
        if let Some(row) = rows.last() {
            (self.streak, self.lowest) = (row.get(14), row.get(15));
            let back_in_line = usize::try_from(row.get::<_, i32>(16)).unwrap_or_default();
            if back_in_line > rows.len() {
                self.core.wakes.wake(&self.queue);
            }
        }
        Ok(rows.iter().map(|row| claim(&self.core, &self.queue, row)).collect())
    }

    fn bytes_max(&self) -> i64 {
        i64::try_from(self.core.options.batch_bytes_max).unwrap_or(i64::MAX)
    }

    /// Whether the bound in bytes may have ended a round trip. The database does not tell, and a round trip too many
    /// does no harm.
    fn may_be_cut(&self, claims: &[Claim]) -> bool {
        let bytes: usize = claims.iter().filter_map(|claim| claim.body.as_ref()).map(Bytes::len).sum();
        bytes > 0 && bytes >= self.core.options.batch_bytes_max / 2
    }

    /// Committed only when somebody is still there for every message that it takes, and can be given it.
    async fn pop(&self, max: i32) -> Result<Vec<Row>, LedgerError> {
        let sql = "SELECT * FROM pop($1, $2, $3, $4, $5, $6, $7)";
        let (bytes_max, share) = (self.bytes_max(), self.share());
        let attempts_max = self.core.options.attempts_max(&self.queue);
        let mut burials = 0;
        loop {
            let max = max.min(self.wanted_for_good());
            if max == 0 {
                return Ok(Vec::new());
            }
            let queue = self.queue.as_str();
            let params: [&(dyn ToSql + Sync); 7] =
                [&queue, &max, &self.streak, &self.lowest, &bytes_max, &share, &attempts_max];
            let popped = self.core.connections.call_uncommitted(sql, &params).await;
            let popped = popped.map_err(|error| error.meaning(Access::Write))?;
            let damaged: Vec<i64> =
                popped.rows.iter().filter(|row| !is_sound(row)).map(|row| row.get(0)).collect();
            if !damaged.is_empty() {
                if burials == BURIALS_MAX {
                    return Err(LedgerError::Corrupt(format!("messages {damaged:?} are damaged")));
                }
                popped.take_back().await;
                tracing::error!(?damaged, "messages are damaged in the database; they become dead letters");
                self.core.write("SELECT bury($1, 'damaged on disk')", &[&damaged]).await?;
                burials += 1;
                continue;
            }
            if popped.rows.len() <= usize::try_from(self.wanted_for_good()).unwrap_or_default() {
                return popped.commit().await.map_err(|error| error.meaning(Access::Write));
            }
            popped.take_back().await;
        }
    }

    /// How many of higher lanes go before one of a lower lane.
    fn share(&self) -> i32 {
        i32::try_from(self.core.options.rule_of(&self.queue).higher_per_lower).unwrap_or(i32::MAX)
    }

    fn wanted_for_good(&self) -> i32 {
        let there = self.asks.iter().filter(|ask| ask.taking == Taking::ForGood && !ask.answer.is_closed());
        i32::try_from(there.map(|ask| ask.max).sum::<usize>()).unwrap_or(i32::MAX)
    }

    fn hand_out(&mut self, taking: Taking, claims: Vec<Claim>) {
        let mut claims = claims.into_iter();
        let (mut waiting, mut left) = (VecDeque::new(), Vec::new());
        for ask in self.asks.drain(..) {
            if ask.taking != taking || claims.len() == 0 || ask.answer.is_closed() {
                waiting.push_back(ask);
                continue;
            }
            let his: Vec<Claim> = claims.by_ref().take(ask.max).collect();
            if let Err(Ok(unwanted)) = ask.answer.send(Ok(his)) {
                left.extend(unwanted);
            }
        }
        self.asks = waiting;
        left.extend(claims);
        // What was popped is gone with whoever left meanwhile; what was leased is there for the next.
        if taking != Taking::ForGood && !left.is_empty() {
            tokio::spawn(hand_back(self.core.clone(), left));
        }
    }

    fn refuse(&mut self, taking: Taking, error: &LedgerError) {
        let (refused, others) = self.asks.drain(..).partition(|ask: &Ask| ask.taking == taking);
        self.asks = others;
        let refused: VecDeque<Ask> = refused;
        for ask in refused {
            let _ = ask.answer.send(Err(error.clone()));
        }
    }

    /// Those who have waited long enough, or asked for nothing.
    fn dismiss(&mut self) {
        let now = Instant::now();
        let (over, waiting) = self.asks.drain(..).partition(|ask: &Ask| ask.deadline <= now || ask.max == 0);
        self.asks = waiting;
        let over: VecDeque<Ask> = over;
        for ask in over {
            let _ = ask.answer.send(Ok(Vec::new()));
        }
    }
}

async fn hand_back(core: Arc<Core>, claims: Vec<Claim>) {
    let released = claims.into_iter().map(|claim| {
        let outcome = Outcome::Released;
        let settlement = Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 0 };
        Step { settlement, lease_ms: None }
    });
    // Otherwise the leases end by themselves.
    let _ = Settlements(core).run(released.collect()).await;
}

/// Without its text when the row can't be read whole: whoever gets it knows by that.
pub fn claim(core: &Core, queue: &QueueName, row: &Row) -> Claim {
    let count = |place: usize| u32::try_from(row.get::<_, i32>(place)).unwrap_or_default();
    let (recipient, user): (Option<&str>, Option<&str>) = (row.get(7), row.get(9));
    Claim {
        id: core.id(row.get(6), row.get(0)),
        queue: queue.clone(),
        recipient: recipient.and_then(|name| Recipient::new(name).ok()),
        lane: lane(row.get(8)).unwrap_or_default(),
        user: user.and_then(|name| UserId::new(name).ok()),
        admitted_at: Timestamp::from_millis(row.get(6)),
        attempt: count(3),
        failures: count(4),
        ack_attempts: count(5),
        ack_required: row.get(10),
        headers: headers(row.get(11)).unwrap_or_default(),
        token: row.get::<_, i64>(1).unsigned_abs(),
        lease_until: Timestamp::from_millis(row.get(2)),
        body: is_sound(row).then(|| Bytes::copy_from_slice(row.get(12))),
    }
}

fn is_sound(row: &Row) -> bool {
    let (recipient, user): (Option<&str>, Option<&str>) = (row.get(7), row.get(9));
    checksum(row.get(12)) == row.get::<_, i64>(13)
        && recipient.is_none_or(|name| Recipient::new(name).is_ok())
        && user.is_none_or(|name| UserId::new(name).is_ok())
        && lane(row.get(8)).is_ok()
        && headers(row.get(11)).is_ok()
}
