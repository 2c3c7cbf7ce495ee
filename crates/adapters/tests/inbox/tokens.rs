use std::sync::Arc;

use tidegate_adapters::channels::inbox::{Inbox, InboxError};
use tidegate_domain::Recipient;
use tidegate_testkit::TestClock;

use crate::bench::options;

const OLD: &str = "an old secret, long enough";
const NEW: &str = "a new secret, long enough";

fn inbox(secrets: &[&str]) -> Result<Inbox, InboxError> {
    Inbox::new(options(secrets), Arc::new(TestClock::new()))
}

fn recipient(text: &str) -> Recipient {
    Recipient::new(text).unwrap()
}

#[test]
fn a_token_opens_its_recipients_inbox_and_no_other() {
    let inbox = inbox(&[NEW]).unwrap();
    let token = inbox.token_for(&recipient("ann"));
    assert_eq!(token.len(), 43);
    assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{token}");
    assert!(inbox.verify(&recipient("ann"), &token));
    assert!(!inbox.verify(&recipient("bob"), &token));
    for wrong in ["", "x", &token[1..], &format!("{token}="), &format!("{token}AA"), &"A".repeat(43)] {
        assert!(!inbox.verify(&recipient("ann"), wrong), "{wrong}");
    }
}

#[test]
fn a_secret_is_changed_with_an_overlap() {
    let (old, both, new) = (inbox(&[OLD]).unwrap(), inbox(&[NEW, OLD]).unwrap(), inbox(&[NEW]).unwrap());
    let ann = recipient("ann");
    assert!(both.verify(&ann, &old.token_for(&ann)) && new.verify(&ann, &both.token_for(&ann)));
    assert!(!new.verify(&ann, &old.token_for(&ann)));
}

#[test]
fn weak_secrets_are_refused_and_none_is_shown() {
    assert_eq!(inbox(&[]).unwrap_err(), InboxError::NoSecret);
    assert_eq!(inbox(&[NEW, "short"]).unwrap_err(), InboxError::ShortSecret);
    let dump = format!("{:?} {:?}", inbox(&[NEW]).unwrap(), options(&[NEW]));
    assert!(!dump.contains("secret,"), "{dump}");
}
