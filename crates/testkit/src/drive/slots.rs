use anyhow::ensure;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tidegate_domain::limits::slot::{BusinessHours, Calendar, Period, SlotRule};
use tidegate_domain::{Clock, Lane, Released, Reservation, Reserved, Slot, Slots, Timestamp};

use super::op::{Op, settle};
use super::pair::{Pair, agree};
use crate::conformance::{Ask, ask, event, slot_config, sms};

const EVENTS: u8 = 60;
const CONFIGS: u8 = 3;

#[derive(Debug, Clone)]
pub enum SlotOp {
    PutConfig {
        config: u8,
        max_per_window: u32,
        window_ms: u64,
        headroom_windows: u64,
        /// Which of a few calendars.
        calendar: u8,
    },
    Reserve(Vec<Reserve>),
    Forecast(Reserve),
    Release {
        event: u8,
    },
}

#[derive(Debug, Clone)]
pub struct Reserve {
    pub event: u8,
    pub config: u8,
    /// From now; negative lies in the past.
    pub requested_in_ms: i64,
    pub jitter: u64,
    /// Queue, recipient and lane of the message it carries.
    pub message: Option<(u8, Option<u8>, Lane)>,
}

/// Sequences that reserve and release a lot, with some sending in between.
pub fn slot_ops(length_max: usize) -> impl Strategy<Value = Vec<Op>> {
    let config = (0..CONFIGS, 1..5u32, select(vec![1_000, 4_000, 60_000]), select(vec![0, 3, 50]), 0..4u8)
        .prop_map(|(config, max_per_window, window_ms, headroom_windows, calendar)| SlotOp::PutConfig {
            config,
            max_per_window,
            window_ms,
            headroom_windows,
            calendar,
        });
    let op = prop_oneof![
        3 => config.prop_map(Op::Slots),
        10 => vec(reserve(), 1..8).prop_map(|batch| Op::Slots(SlotOp::Reserve(batch))),
        3 => reserve().prop_map(|asked| Op::Slots(SlotOp::Forecast(asked))),
        4 => (0..EVENTS).prop_map(|event| Op::Slots(SlotOp::Release { event })),
        2 => (0..2u8, select(vec![1usize, 2, 12]), select(vec![50, 30_000]))
            .prop_map(|(queue, max, lease_ms)| Op::Claim { queue, max, lease_ms }),
        2 => vec(settle(), 1..5).prop_map(Op::Settle),
        3 => prop_oneof![0..5_000u64, select(vec![4_000, 60_000, 3_600_000])].prop_map(Op::AdvanceMs),
        1 => Just(Op::Reopen),
        1 => Just(Op::Sweep),
    ];
    vec(op, 1..length_max)
}

fn reserve() -> impl Strategy<Value = Reserve> {
    let requested_in_ms =
        prop_oneof![3 => Just(0), 2 => -10_000..60_000i64, 1 => select(vec![4_000, 60_000])];
    let message = (0..2u8, proptest::option::of(0..3u8), select(Lane::ALL.to_vec()));
    (0..EVENTS, 0..CONFIGS, requested_in_ms, any::<u64>(), proptest::option::weighted(0.3, message)).prop_map(
        |(event, config, requested_in_ms, jitter, message)| Reserve {
            event,
            config,
            requested_in_ms,
            jitter,
            message,
        },
    )
}

impl Pair<'_> {
    pub(super) async fn apply_slots(&mut self, op: &SlotOp) -> anyhow::Result<()> {
        let (slots, now) = (self.subject.slots(), self.subject.clock.now());
        match op {
            SlotOp::PutConfig { config, max_per_window, window_ms, headroom_windows, calendar } => {
                let name = slot_config(&format!("config{config}"));
                let rule = SlotRule {
                    max_per_window: *max_per_window,
                    window_ms: *window_ms,
                    headroom_windows: *headroom_windows,
                    calendar: a_calendar(*calendar, now),
                };
                let ours = slots.put_slot_config(name.clone(), rule.clone()).await?;
                agree(&ours, &self.model.put_slot_config(name, rule).await?)
            }
            SlotOp::Reserve(batch) => {
                self.reserve(batch.iter().map(|asked| reservation(asked, now)).collect()).await
            }
            SlotOp::Forecast(asked) => {
                let Reservation { config, requested, jitter, .. } = reservation(asked, now);
                let ours = slots.forecast(config.clone(), requested, jitter).await?;
                agree(&ours, &self.model.forecast(config, requested, jitter).await?)
            }
            SlotOp::Release { event: id } => {
                let event = event(&format!("event{id}"));
                let ours = match slots.release(event.clone()).await? {
                    Released::Released(slot) => Released::Released(self.as_theirs(slot)),
                    Released::Used(slot) => Released::Used(self.as_theirs(slot)),
                    Released::UnknownEvent => Released::UnknownEvent,
                };
                agree(&ours, &self.model.release(event).await?)
            }
        }
    }

    /// Who has which slot, and every version of every configuration.
    pub(super) async fn compare_slots(&self) -> anyhow::Result<()> {
        let slots = self.subject.slots();
        for id in 0..EVENTS {
            let event = event(&format!("event{id}"));
            let ours = slots.slot(event.clone()).await?.map(|slot| self.as_theirs(slot));
            agree(&ours, &self.model.slot(event).await?)?;
        }
        for config in 0..CONFIGS {
            let name = slot_config(&format!("config{config}"));
            agree(&slots.slot_config(name.clone()).await?, &self.model.slot_config(name).await?)?;
        }
        Ok(())
    }

    async fn reserve(&mut self, batch: Vec<Reservation>) -> anyhow::Result<()> {
        let ours = self.subject.slots().reserve(batch.clone()).await?;
        let theirs = self.model.reserve(batch).await?;
        ensure!(ours.len() == theirs.len(), "{} answers instead of {}", ours.len(), theirs.len());
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            if let (Reserved::Assigned(ours), Reserved::Assigned(theirs)) = (&ours, &theirs)
                && let (Some(ours), Some(theirs)) = (ours.message, theirs.message)
            {
                self.ids.push((ours, theirs));
            }
            let ours = match ours {
                Reserved::Assigned(slot) => Reserved::Assigned(self.as_theirs(slot)),
                Reserved::Existing(slot) => Reserved::Existing(self.as_theirs(slot)),
                refused => refused,
            };
            agree(&ours, &theirs)?;
        }
        Ok(())
    }

    fn as_theirs(&self, slot: Slot) -> Slot {
        Slot { message: slot.message.map(|id| self.their_id(id)), ..slot }
    }
}

fn reservation(asked: &Reserve, now: Timestamp) -> Reservation {
    let mut made = ask(&format!("event{}", asked.event)).of(&format!("config{}", asked.config));
    if let Some((queue, recipient, lane)) = asked.message {
        let draft = sms("carried").on(&format!("queue{queue}")).lane(lane);
        made = made.with(match recipient {
            Some(recipient) => draft.to(&format!("recipient{recipient}")),
            None => draft,
        });
    }
    let Ask(reservation) = made.jitter(asked.jitter);
    Reservation { requested: Timestamp::from_millis(now.millis() + asked.requested_in_ms), ..reservation }
}

/// Mostly open; with a blackout soon; with few open minutes on weekends; with both.
fn a_calendar(which: u8, now: Timestamp) -> Calendar {
    let blackout = Period { from: now.plus_ms(5_000), to: now.plus_ms(20_500) };
    let days = ["SAT".to_owned(), "SUN".to_owned()];
    let hours = BusinessHours::new("UTC", &days, "22:00", "23:05").expect("business hours");
    Calendar {
        blackouts: if which.is_multiple_of(2) { Vec::new() } else { vec![blackout] },
        business_hours: (which >= 2).then_some(hours),
    }
}
