use async_trait::async_trait;
use tidegate_domain::limits::slot::SlotRule;
use tidegate_domain::{
    EventId, Forecast, LedgerError, Released, Reservation, Reserved, Slot, SlotConfig, SlotConfigName,
    SlotConfigPut, Slots, Timestamp,
};

use crate::Postgres;
use crate::codes::{bounded, nonsense};
use crate::connection::Params;
use crate::error::{Access, MORE_RANGES};
use crate::reserve::{Places, Reach};

const SLOT: &str = "SELECT s.config, s.requested, s.scheduled, s.window_start, s.created_at, s.message_seq, \
                    m.admitted_at FROM slot s LEFT JOIN message m ON m.seq = s.message_seq WHERE s.event = $1";

const PLACE: &str = "SELECT slot_place($1, $2, $3, $4, $5) \
                     WHERE (SELECT coalesce(sum(held), 0)::bigint FROM slot_book) < $6";

#[async_trait]
impl Slots for Postgres {
    async fn put_slot_config(
        &self,
        name: SlotConfigName,
        rule: SlotRule,
    ) -> Result<SlotConfigPut, LedgerError> {
        self.core.put_slot_config(name, rule).await
    }

    async fn slot_config(&self, name: SlotConfigName) -> Result<Vec<SlotConfig>, LedgerError> {
        self.core.slot_versions(&name, i64::MAX).await
    }

    async fn reserve(&self, batch: Vec<Reservation>) -> Result<Vec<Reserved>, LedgerError> {
        self.reservations.call(batch).await
    }

    async fn slot(&self, event: EventId) -> Result<Option<Slot>, LedgerError> {
        let rows = self.core.read(SLOT, &[&event.as_str()]).await?;
        rows.first().map(|row| self.core.slot_of(event, row, 0)).transpose()
    }

    async fn release(&self, event: EventId) -> Result<Released, LedgerError> {
        let rows = self.core.write("SELECT * FROM release($1)", &[&event.as_str()]).await?;
        let Some(row) = rows.first() else { return Ok(Released::UnknownEvent) };
        let slot = self.core.slot_of(event, row, 1)?;
        self.core.wakes.wake_all();
        match row.get::<_, i16>(0) {
            0 => Ok(Released::Released(slot)),
            1 => Ok(Released::Used(slot)),
            code => Err(nonsense("answer", code)),
        }
    }

    /// Of the newest version, whatever this process remembers.
    async fn forecast(
        &self,
        config: SlotConfigName,
        requested: Timestamp,
        jitter: u64,
    ) -> Result<Forecast, LedgerError> {
        let Some(config) = self.core.slot_versions(&config, 1).await?.pop() else {
            return Ok(Forecast::UnknownConfig);
        };
        let (name, slots_max) = (config.name.as_str(), bounded(self.core.options.slots_max));
        let mut reach = Reach::default();
        let (places, rows) = loop {
            let places = Places::new(&config.rule, requested, jitter, reach);
            let params: Params<'_> =
                &[&name, &places.first, &places.share, &places.from, &places.past, &slots_max];
            match self.core.connections.call(PLACE, params).await {
                Err(error) if error.is_code(MORE_RANGES) => reach = reach.wider(),
                result => break (places, result.map_err(|error| error.meaning(Access::Read))?),
            }
        };
        let Some(window) = rows.first().and_then(|row| row.get::<_, Option<i64>>(0)) else {
            return Ok(Forecast::NoRoom);
        };
        let window_start = config.rule.window_start(window);
        let scheduled = if window == places.first {
            Timestamp::from_millis(places.first_at)
        } else {
            window_start.plus_ms(places.jitter_ms.unsigned_abs())
        };
        Ok(Forecast::At { window_start, scheduled })
    }
}
