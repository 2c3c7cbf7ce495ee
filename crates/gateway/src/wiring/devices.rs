use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tidegate_adapters::channels::inbox::{Inbox, InboxMessage, Subscription};
use tidegate_domain::{MessageId, Recipient};

use crate::devices::{DeviceMessage, Devices, Listening};

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

    fn listeners(&self) -> usize {
        Inbox::listeners(self)
    }
}

impl Listening for Subscription {
    fn next(&mut self) -> BoxFuture<'_, Option<DeviceMessage>> {
        Subscription::next(self).map(|message| message.map(shown)).boxed()
    }

    fn try_next(&mut self) -> Option<DeviceMessage> {
        Subscription::try_next(self).map(shown)
    }
}

fn shown(message: InboxMessage) -> DeviceMessage {
    let InboxMessage { id, queue, idempotency_key, headers, body, admitted_at, attempt } = message;
    DeviceMessage { id, queue, idempotency_key, headers, body, admitted_at, attempt }
}
