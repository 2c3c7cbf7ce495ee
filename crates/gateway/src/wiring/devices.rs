use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tidegate_adapters::channels::inbox::{self, Inbox, InboxMessage, Subscription};
use tidegate_domain::{MessageId, QueueName, Recipient};

use crate::devices::{Desk, DeviceMessage, Devices, Handover, Listening, Newcomer, Ticket};

impl Devices for Inbox {
    fn token_for(&self, recipient: &Recipient) -> String {
        Inbox::token_for(self, recipient)
    }

    fn verify(&self, recipient: &Recipient, token: &str) -> bool {
        Inbox::verify(self, recipient, token)
    }

    fn listen(&self, recipient: &Recipient) -> Option<Box<dyn Listening>> {
        let subscription = self.subscribe(recipient).ok()?;
        Some(Box::new(subscription))
    }

    fn acked(&self, ids: &[MessageId]) {
        Inbox::acked(self, ids);
    }

    fn until_settled(&self, id: MessageId) -> BoxFuture<'_, ()> {
        Inbox::until_settled(self, id).boxed()
    }

    fn listeners(&self) -> usize {
        Inbox::listeners(self)
    }

    fn desk(&self, queue: &QueueName) -> Arc<dyn Desk> {
        Arc::new(Inbox::desk(self, queue))
    }
}

impl Listening for Subscription {
    fn looked(&mut self) -> BoxFuture<'_, bool> {
        Subscription::looked(self).boxed()
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Handover>> {
        Subscription::next(self).map(|handover| handover.map(handed)).boxed()
    }

    fn try_next(&mut self) -> Option<Handover> {
        Subscription::try_next(self).map(handed)
    }
}

impl Desk for inbox::Desk {
    fn newcomers(&self) -> BoxFuture<'_, Vec<Newcomer>> {
        let newcomer =
            |inbox::Newcomer { recipient, looked }: inbox::Newcomer| Newcomer { recipient, looked };
        inbox::Desk::newcomers(self).map(move |all| all.into_iter().map(newcomer).collect()).boxed()
    }

    fn listening(&self) -> Vec<Recipient> {
        inbox::Desk::listening(self)
    }

    fn listens(&self, recipient: &Recipient) -> bool {
        inbox::Desk::listens(self, recipient)
    }

    fn offer(
        &self,
        recipient: &Recipient,
        message: DeviceMessage,
        patience: Duration,
        lease: Duration,
    ) -> Option<BoxFuture<'static, bool>> {
        let DeviceMessage { id, queue, idempotency_key, headers, body, admitted_at, attempt, ack_required } =
            message;
        let message =
            InboxMessage { id, queue, idempotency_key, headers, body, admitted_at, attempt, ack_required };
        let offered = inbox::Desk::offer(self, recipient, message)?;
        Some(offered.is_taken(patience, lease).boxed())
    }

    fn settled(&self, id: MessageId) {
        inbox::Desk::settled(self, id);
    }
}

impl Ticket for inbox::Handover {
    fn written(self: Box<Self>) {
        inbox::Handover::written(*self);
    }
}

fn handed(handover: inbox::Handover) -> Handover {
    let (message, is_repeated) = (shown(handover.message.clone()), handover.is_repeated());
    Handover { message, is_repeated, ticket: Box::new(handover) }
}

fn shown(message: InboxMessage) -> DeviceMessage {
    let InboxMessage { id, queue, idempotency_key, headers, body, admitted_at, attempt, ack_required } =
        message;
    DeviceMessage { id, queue, idempotency_key, headers, body, admitted_at, attempt, ack_required }
}
