use anyhow::Context;
use tidegate_domain::MessageId;

use super::ProviderJournal;

/// Adds the deliveries in what a gateway with the `log` channel wrote to its stdout during one life:
///
/// ```text
/// SMS SENT id=<message id> user=<user id or -> [recipient=<JSON string>] message=<JSON string>
/// ```
///
/// Other lines are not deliveries. A last line without its newline was cut off by the process' death: the
/// provider did not get that message.
pub fn read_log_channel(stdout: &[u8], journal: &mut ProviderJournal) -> anyhow::Result<usize> {
    let before = journal.deliveries.len();
    for line in stdout.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\n").and_then(|line| line.strip_prefix(b"SMS SENT ")) else {
            continue;
        };
        let line = str::from_utf8(line).context("a delivery that is not UTF-8")?;
        read_line(line, journal).with_context(|| format!("not a delivery: {line:?}"))?;
    }
    Ok(journal.deliveries.len() - before)
}

fn read_line(line: &str, journal: &mut ProviderJournal) -> anyhow::Result<()> {
    let rest = line.strip_prefix("id=").context("no id")?;
    let (id, rest) = rest.split_once(" user=").context("no user")?;
    let (user, message) = rest.split_once(" message=").context("no message")?;
    let user = user.split_once(" recipient=\"").map_or(user, |(user, _)| user);
    let id: MessageId = id.parse()?;
    let message: String = serde_json::from_str(message)?;
    journal.note(id, (user != "-").then_some(user), &message);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01981c5e-8a00-7000-8000-00000040d2f1";

    fn read(text: &str) -> anyhow::Result<Vec<(Option<String>, String)>> {
        let mut journal = ProviderJournal::default();
        read_log_channel(text.as_bytes(), &mut journal)?;
        let pairs = journal.deliveries.iter();
        Ok(pairs.map(|handed| (handed.user.as_deref().map(Into::into), handed.message.to_string())).collect())
    }

    #[test]
    fn deliveries_are_read_among_other_lines() {
        let text = format!(
            "listening on 127.0.0.1:8080\nSMS SENT id={ID} user=u 17 message=\"a\\n\\\"b\\\" message=c\"\n\
             SMS SENT id={ID} user=- message=\"\"\n"
        );
        let expected = [(Some("u 17".into()), "a\n\"b\" message=c".into()), (None, String::new())];
        assert_eq!(read(&text).unwrap(), expected);
    }

    #[test]
    fn a_line_cut_off_by_death_is_no_delivery() {
        assert_eq!(read(&format!("SMS SENT id={ID} user=u message=\"a\"")).unwrap(), []);
    }

    #[test]
    fn a_whole_line_that_makes_no_sense_is_an_error() {
        assert!(read("SMS SENT id=17 user=u message=\"a\"\n").is_err());
        assert!(read(&format!("SMS SENT id={ID} user=u message=\"a\n")).is_err());
    }
}
