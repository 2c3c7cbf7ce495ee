use std::fmt::Write as _;
use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_domain::{Channel, Claim, Delivery};
use tokio::sync::oneshot;

const WAITING_MAX: usize = 4_096;
const GROUP_MAX: usize = 512;

/// Delivers by printing one line per message: `SMS SENT id=… user=… message="…"`, with its `recipient="…"` where that is
/// somebody else than the user. A user's name is quoted only if it has to be.
///
/// A thread of its own does the writing, so that a stalled pipe stalls deliveries and nothing else. A message
/// counts as delivered when its line has been flushed.
#[derive(Debug)]
pub struct LogChannel {
    lines: SyncSender<Line>,
}

struct Line {
    text: String,
    written: oneshot::Sender<std::io::Result<()>>,
}

impl LogChannel {
    pub fn stdout() -> std::io::Result<Self> {
        Self::to(std::io::stdout())
    }

    pub fn to(sink: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        thread::Builder::new().name("log-channel".into()).spawn(move || write_lines(sink, &waiting))?;
        Ok(Self { lines })
    }
}

#[async_trait]
impl Channel for LogChannel {
    fn name(&self) -> &'static str {
        "log"
    }

    async fn deliver(&self, claim: &Claim, body: &Bytes) -> Delivery {
        let later = |reason: &str| Delivery::TryLater { after_ms: None, reason: reason.to_owned() };
        let (written, done) = oneshot::channel();
        match self.lines.try_send(Line { text: line(claim, body), written }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return later("the log channel's line is full"),
            Err(TrySendError::Disconnected(_)) => return later("the log channel has stopped"),
        }
        match done.await {
            Ok(Ok(())) => Delivery::Delivered,
            Ok(Err(error)) => later(&format!("cannot write the line: {error}")),
            Err(_) => later("the log channel has stopped"),
        }
    }
}

fn write_lines(mut sink: impl Write, waiting: &Receiver<Line>) {
    let mut text = String::new();
    let mut group = Vec::new();
    while let Ok(first) = waiting.recv() {
        group.push(first);
        group.extend(waiting.try_iter().take(GROUP_MAX - 1));
        text.clear();
        for line in &group {
            text.push_str(&line.text);
        }
        let result = sink.write_all(text.as_bytes()).and_then(|()| sink.flush());
        for line in group.drain(..) {
            let copy = result
                .as_ref()
                .map_or_else(|e| Err(std::io::Error::new(e.kind(), e.to_string())), |()| Ok(()));
            // Whoever stopped waiting has given up its attempt; the lease decides.
            let _ = line.written.send(copy);
        }
    }
}

/// The texts are quoted and escaped: a message must not be able to forge a second line.
fn line(claim: &Claim, body: &Bytes) -> String {
    let user = claim.user.as_ref().map_or("-", |user| user.as_str());
    let text = String::from_utf8_lossy(body);
    let mut line = String::with_capacity(text.len() + 96);
    let _ = write!(line, "SMS SENT id={} user=", claim.id);
    match &claim.user {
        Some(user) if !is_plain(user.as_str()) => quote(&mut line, "", user.as_str()),
        _ => line.push_str(user),
    }
    // Most often they are the same.
    if let Some(recipient) = claim.recipient.as_ref().filter(|recipient| recipient.as_str() != user) {
        quote(&mut line, " recipient=", recipient.as_str());
    }
    quote(&mut line, " message=", &text);
    line.push('\n');
    line
}

/// Whether a user's name stands for itself: nothing in it ends it, and it is not the dash that means nobody.
fn is_plain(user: &str) -> bool {
    user != "-" && user.chars().all(|c| c.is_alphanumeric() || ".-_@+:".contains(c))
}

fn quote(line: &mut String, name: &str, text: &str) {
    line.push_str(name);
    line.push('"');
    for c in text.chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            c if c.is_control() || is_unseen(c) => {
                // As in JSON: two of them for what lies beyond four digits.
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(line, "\\u{unit:04x}");
                }
            }
            c => line.push(c),
        }
    }
    line.push('"');
}

/// Characters that show nothing themselves, and break, reorder or hide what stands around them: separators of lines,
/// marks of direction, zero-width ones, fillers, variation selectors and tags.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tidegate_domain::{Lane, MessageId, QueueName, Recipient, Timestamp, UserId};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>, bool);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.1 {
                return Err(std::io::ErrorKind::BrokenPipe.into());
            }
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn claim() -> Claim {
        Claim {
            id: MessageId::new(Timestamp::from_millis(0), 7, 1),
            queue: QueueName::new("sms").unwrap(),
            recipient: None,
            lane: Lane::Normal,
            user: Some(UserId::new("1001").unwrap()),
            admitted_at: Timestamp::from_millis(0),
            attempt: 1,
            failures: 0,
            ack_attempts: 0,
            ack_required: false,
            headers: tidegate_domain::Headers::default(),
            token: 1,
            lease_until: Timestamp::MAX,
            body: None,
        }
    }

    #[tokio::test]
    async fn a_message_cannot_forge_a_line() {
        let sink = Sink::default();
        let channel = LogChannel::to(sink.clone()).unwrap();
        let body = Bytes::from_static("hi \"you\"\nSMS SENT id=0 \u{1b}[2J ü".as_bytes());
        assert_eq!(channel.deliver(&claim(), &body).await, Delivery::Delivered);
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        let id = claim().id;
        let expected =
            format!("SMS SENT id={id} user=1001 message=\"hi \\\"you\\\"\\nSMS SENT id=0 \\u001b[2J ü\"\n");
        assert_eq!(text, expected);
    }

    /// A terminal shows such a line in another order, or without parts of it, than it was written.
    #[test]
    fn nothing_in_a_text_reorders_or_hides_parts_of_its_line() {
        let shown = |text: &str| {
            let line = line(&claim(), &Bytes::copy_from_slice(text.as_bytes()));
            line.split_once(" message=").unwrap().1.trim_end().to_owned()
        };
        assert_eq!(shown("to \u{202e}bob\u{202c}"), r#""to \u202ebob\u202c""#);
        assert_eq!(shown("a\u{200b}b\u{feff}c\u{2066}\u{2069}"), r#""a\u200bb\ufeffc\u2066\u2069""#);
        assert_eq!(shown("\u{e0041}"), r#""\udb40\udc41""#);
        for c in
            "\u{ad}\u{61c}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2060}\u{206f}\u{180e}\u{3164}\u{fe0f}"
                .chars()
        {
            assert_eq!(shown(&c.to_string()), format!("\"\\u{:04x}\"", u32::from(c)));
        }
        for text in ["Grüße", "שלום", "مرحبا", "🌊", "日本"] {
            assert_eq!(shown(text), format!("\"{text}\""));
        }
    }

    #[test]
    fn a_recipient_is_named_who_is_not_the_user() {
        let to = |recipient: &str| Claim { recipient: Recipient::new(recipient).ok(), ..claim() };
        let shown = |claim: &Claim| line(claim, &Bytes::from_static(b"hi"));
        assert_eq!(shown(&to("1001")), shown(&claim()));
        let nobody = Claim { user: None, ..to("a \"b\"") };
        let expected =
            format!("SMS SENT id={} user=- recipient=\"a \\\"b\\\"\" message=\"hi\"\n", claim().id);
        assert_eq!(shown(&nobody), expected);
    }

    #[test]
    fn a_user_cannot_forge_what_follows_its_name() {
        let shown = |user: &str| {
            let claim = Claim { user: UserId::new(user).ok(), ..claim() };
            let line = line(&claim, &Bytes::from_static(b"hi"));
            line.split_once(" user=").unwrap().1.strip_suffix(" message=\"hi\"\n").unwrap().to_owned()
        };
        for plain in ["1001", "ann.b_c-d", "ann@example.com", "+49:170", "Zoë"] {
            assert_eq!(shown(plain), plain);
        }
        assert_eq!(shown("a message=\"fake\" x"), "\"a message=\\\"fake\\\" x\"");
        for (user, quoted) in [("a b", "\"a b\""), ("a=b", "\"a=b\""), ("\"", "\"\\\"\""), ("-", "\"-\"")] {
            assert_eq!(shown(user), quoted, "{user}");
        }
    }

    #[tokio::test]
    async fn a_broken_pipe_is_tried_again_later() {
        let channel = LogChannel::to(Sink(Arc::default(), true)).unwrap();
        let outcome = channel.deliver(&claim(), &Bytes::from_static(b"hi")).await;
        assert!(matches!(outcome, Delivery::TryLater { .. }), "{outcome:?}");
    }
}
