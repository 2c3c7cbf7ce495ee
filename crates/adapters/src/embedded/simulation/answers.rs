//! What both sides answer, as texts without ids: each side names messages its own way.

use tidegate_domain::{Admitted, Cancelled, Claim, MessageId, QueueName, Released, Reserved, Slot};

use super::super::book::Leased;
use super::super::engine::Changed;
use super::super::rows::MessageRow;

pub(super) fn text(changed: Changed) -> Vec<String> {
    match changed {
        Changed::Admitted(admitted) => admitted.iter().map(admission_text).collect(),
        Changed::Settled(settled) => settled.iter().map(|settled| format!("{settled:?}")).collect(),
        Changed::Quota(quota) => vec![format!("{quota:?}")],
        Changed::Deleted(deleted) => vec![format!("{deleted}")],
        Changed::Reserved(reserved) => reserved.into_iter().map(reserved_text).collect(),
        Changed::Released(Released::Released(slot)) => vec![format!("released {}", slot_text(slot))],
        Changed::Released(Released::Used(slot)) => vec![format!("used {}", slot_text(slot))],
        Changed::Released(Released::UnknownEvent) => vec!["unknown".into()],
        Changed::SlotConfig(put) => vec![format!("{put:?}")],
        Changed::Acked(acked) => acked.iter().map(|acked| format!("{acked:?}")).collect(),
        Changed::Cancelled(cancelled) => cancelled.iter().map(|cancelled| format!("{cancelled:?}")).collect(),
        // The model is asked to cancel exactly what a slice of a purge takes.
        Changed::Purged { count, .. } => (0..count).map(|_| format!("{:?}", Cancelled::Cancelled)).collect(),
        Changed::Requeued(requeued) => requeued.iter().map(|requeued| format!("{requeued:?}")).collect(),
        Changed::DeadDeleted(deleted) => deleted.iter().map(|deleted| format!("{deleted}")).collect(),
        Changed::Paused(known) => vec![format!("{known}")],
        Changed::Failed(error) => panic!("nothing is damaged: {error}"),
        Changed::Popped(_) | Changed::Advanced { .. } => panic!("its texts have to be fetched"),
    }
}

/// The messages that came into being.
pub(super) fn new_ids(changed: &Changed) -> Vec<MessageId> {
    let admitted = |admitted: &Admitted| match admitted {
        Admitted::Admitted { id, .. } | Admitted::Deferred { id, .. } => Some(*id),
        _ => None,
    };
    let reserved = |reserved: &Reserved| match reserved {
        Reserved::Assigned(slot) => slot.message,
        _ => None,
    };
    match changed {
        Changed::Admitted(all) => all.iter().filter_map(admitted).collect(),
        Changed::Reserved(all) => all.iter().filter_map(reserved).collect(),
        _ => Vec::new(),
    }
}

/// What a consumer sees of a message, whoever numbered it.
pub(super) fn claim_text(claim: &Claim) -> String {
    let Claim { body, lane, admitted_at, attempt, failures, ack_attempts, ack_required, headers, .. } = claim;
    format!(
        "{body:?} {lane:?} {admitted_at:?} attempt {attempt}, {failures} failures, {ack_attempts} acks, \
         {ack_required}, {headers:?}"
    )
}

pub(super) fn row_text(leased: &Leased, row: &MessageRow, salt: u32) -> String {
    claim_text(&Claim {
        id: MessageId::new(row.at, row.seq, salt),
        queue: QueueName::new("any").unwrap(),
        recipient: None,
        lane: row.lane,
        user: None,
        admitted_at: row.at,
        attempt: leased.attempt,
        failures: leased.failures,
        ack_attempts: leased.ack_attempts,
        ack_required: row.ack_required,
        headers: row.headers.clone(),
        token: 0,
        lease_until: leased.until,
        body: Some(row.body.clone()),
    })
}

fn reserved_text(reserved: Reserved) -> String {
    match reserved {
        Reserved::Assigned(slot) => format!("assigned {}", slot_text(slot)),
        Reserved::Existing(slot) => format!("existing {}", slot_text(slot)),
        refused => format!("{refused:?}"),
    }
}

pub(super) fn slot_text(slot: Slot) -> String {
    let with_message = slot.message.is_some();
    format!("{:?} {with_message}", Slot { message: None, ..slot })
}

fn admission_text(admitted: &Admitted) -> String {
    match admitted {
        Admitted::Admitted { at, quota, .. } => format!("admitted {at:?} {quota:?}"),
        Admitted::Deferred { at, due, quota, .. } => format!("deferred {at:?} {due:?} {quota:?}"),
        Admitted::Duplicate { at, .. } => format!("duplicate {at:?}"),
        Admitted::KeyConflict { .. } => "conflict".into(),
        refused => format!("{refused:?}"),
    }
}
