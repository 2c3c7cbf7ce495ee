use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_domain::limits::Quota;
use tidegate_domain::{Admission, Admitted, LedgerError, MessageId, Timestamp};
use tokio_postgres::Row;

use crate::batch::Operation;
use crate::codes::{nonsense, small, unsigned};
use crate::error::{Access, NO_PARTITION, RACE};
use crate::open::Core;

mod sheet;

pub use sheet::places;
use sheet::{Charge, Sheet};

/// How often a batch is decided anew because another gateway used one of its keys at the same moment.
pub const RACES_MAX: usize = 5;

#[derive(Debug)]
pub struct Admissions {
    core: Arc<Core>,
}

impl Admissions {
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }
}

#[async_trait]
impl Operation for Admissions {
    type Item = Admission;
    type Answer = Admitted;

    async fn run(&self, items: Vec<Admission>) -> Result<Vec<Admitted>, LedgerError> {
        let core = &self.core;
        let sheet = Sheet::new(core, &items);
        let mut races = 0;
        let rows = loop {
            match sheet.send(core).await {
                Err(error) if error.is_code(RACE) && races < RACES_MAX => races += 1,
                Err(error) if error.is_code(NO_PARTITION) && races < RACES_MAX => {
                    core.make_partitions().await?;
                    races += 1;
                }
                result => break result.map_err(|error| error.meaning(Access::Write))?,
            }
        };
        let [row] = &rows[..] else { return Err(nonsense("number of rows", rows.len())) };
        let answers = answers(core, &sheet, row)?;
        if answers.len() != items.len() {
            return Err(nonsense("number of answers", answers.len()));
        }
        let entered =
            |answer: &Admitted| matches!(answer, Admitted::Admitted { .. } | Admitted::Deferred { .. });
        let touched: BTreeSet<_> = items
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| entered(answer))
            .map(|(item, _)| &item.queue)
            .collect();
        for queue in touched {
            core.wakes.wake(queue);
        }
        Ok(answers)
    }

    fn bytes(item: &Admission) -> usize {
        item.body.len() + item.headers.0.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

/// One for each item, in order.
fn answers(core: &Core, sheet: &Sheet<'_>, row: &Row) -> Result<Vec<Admitted>, LedgerError> {
    let column = |at: usize| Column(row.get::<_, Option<Vec<Option<i64>>>>(at).unwrap_or_default());
    let at: i64 = row.get(1);
    let (seqs, ats, dues) = (column(2), column(3), column(4));
    let (maxima, windows, counts, sinces) = (column(5), column(6), column(7), column(8));
    let exempts = row.get::<_, Option<Vec<Option<bool>>>>(9).unwrap_or_default();
    let quota = |charge: Charge, count: Option<i64>, since: Option<i64>| {
        Some(Quota {
            limit: small(maxima.get(charge.place)?),
            window_ms: unsigned(windows.get(charge.place)?),
            count: small(count?),
            since: Timestamp::from_millis(since?),
            exempts_high: exempts.get(charge.place).copied().flatten().unwrap_or_default(),
        })
    };
    let Some(verdicts) = row.get::<_, Option<Vec<i16>>>(0) else {
        // All as one: counts are those after the user's last.
        let answer = |(charge, seq): (Option<Charge>, &Option<i64>)| {
            let quota = charge.and_then(|charge| {
                let count = counts.get(charge.place).map(|count| count - charge.later);
                quota(charge, count, sinces.get(charge.place))
            });
            let id = core.id(at, seq.ok_or_else(|| nonsense("number", "nothing"))?);
            Ok(Admitted::Admitted { id, at: Timestamp::from_millis(at), quota })
        };
        return sheet.charges().zip(&seqs.0).map(answer).collect();
    };
    let answer = |(item, (charge, verdict)): (usize, (Option<Charge>, i16))| {
        let at = ats.get(item).unwrap_or(at);
        let id = core.id(at, seqs.get(item).unwrap_or_default());
        let quota = charge.and_then(|charge| quota(charge, counts.get(item), sinces.get(item)));
        decided(verdict, id, Timestamp::from_millis(at), dues.get(item), quota)
    };
    sheet.charges().zip(verdicts).enumerate().map(answer).collect()
}

fn decided(
    verdict: i16,
    id: MessageId,
    at: Timestamp,
    due: Option<i64>,
    quota: Option<Quota>,
) -> Result<Admitted, LedgerError> {
    let charged = || quota.ok_or_else(|| nonsense("charge", "nothing"));
    Ok(match verdict {
        0 => Admitted::Admitted { id, at, quota },
        1 => {
            let due = Timestamp::from_millis(due.ok_or_else(|| nonsense("due time", "nothing"))?);
            Admitted::Deferred { id, at, due, quota: charged()? }
        }
        2 => Admitted::Duplicate { id, at },
        3 => Admitted::KeyConflict { id },
        4 => Admitted::UnknownUser,
        5 => {
            let quota = charged()?;
            Admitted::OverQuota { retry_after_ms: quota.resets_in_ms(at), at, quota }
        }
        6 => Admitted::Full,
        7 => Admitted::QueueFull,
        code => return Err(nonsense("verdict", code)),
    })
}

/// An array of the answer: missing values are null.
struct Column(Vec<Option<i64>>);

impl Column {
    fn get(&self, place: usize) -> Option<i64> {
        self.0.get(place).copied().flatten()
    }
}
