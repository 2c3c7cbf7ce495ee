use tidegate_domain::{Filter, LedgerError, MessageId};

use crate::codes::{bounded, seq};
use crate::open::Core;

/// Messages that one page of a look-up by recipient or user looks at, at the least where there are so many.
const LOOKED_AT_MAX: i32 = 5_000;
/// Numbers of messages that are read one by one, when the sweeps are behind.
const READ_MAX: i64 = 100_000;
/// Blocks that one statement of a sweep puts together, and how many statements it is made of.
const BLOCKS: i32 = 8;
const SLICES: usize = 20;
/// A retired range that has kept more than this part of a whole one is not looked at again.
const KEPT: i64 = 8;

/// Messages that may be a recipient's or a user's, by number.
#[derive(Debug)]
pub struct Found {
    pub seqs: Vec<i64>,
    /// Where the next page goes on, unless these are all.
    pub looked_to: Option<MessageId>,
}

impl Core {
    /// None when the filter names neither recipient nor user.
    pub async fn find_party(
        &self,
        filter: &Filter,
        after: Option<MessageId>,
    ) -> Result<Option<Found>, LedgerError> {
        let recipient = filter.recipient.as_ref().map(|recipient| recipient.as_str());
        let Some(name) = recipient.or(filter.user.as_ref().map(|user| user.as_str())) else {
            return Ok(None);
        };
        let after = after.map_or(-1, seq);
        let sql = "SELECT seqs, looked_to FROM find_party($1, $2, $3, $4)";
        let rows = self.read(sql, &[&name, &after, &LOOKED_AT_MAX, &READ_MAX]).await?;
        Ok(rows.first().map(|row| {
            // Of a cursor only the number counts.
            let looked_to = row.get::<_, Option<i64>>(1).map(|number| self.id(0, number));
            Found { seqs: row.get(0), looked_to }
        }))
    }

    /// A bounded part of what look-ups need of the messages that have come, and of those that are gone.
    pub async fn summarize(&self) -> Result<(), LedgerError> {
        for _ in 0..SLICES {
            let rows = self.write("SELECT summarize_parties($1)", &[&BLOCKS]).await?;
            if rows.first().is_none_or(|row| row.get::<_, i64>(0) == 0) {
                break;
            }
        }
        let kept_max = bounded(self.options.partition_messages) / KEPT;
        self.write("SELECT tidy_parties($1)", &[&kept_max]).await.map(drop)
    }
}
