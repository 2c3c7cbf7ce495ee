use http::HeaderMap;
use tidegate_domain::Headers;

const NAME: &str = "traceparent";
/// Version, trace id, parent id and flags, with what stands between them.
const LENGTH: usize = 55;

/// The W3C trace context that a request belongs to, to travel with its messages: each attempt then belongs to the same
/// trace. One that makes no sense is ignored, as the standard wants it: no message fails for the sake of a trace.
pub fn of_request(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(NAME).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    checked(value.to_str().ok()?.trim())
}

/// Adds it to what travels with a message, unless the message says something itself, or there is no room.
pub fn add(headers: &mut Headers, trace: Option<&str>) {
    let Some(trace) = trace else { return };
    if headers.0.iter().any(|(name, _)| name.eq_ignore_ascii_case(NAME)) {
        return;
    }
    headers.0.push((NAME.to_owned(), trace.to_owned()));
    if headers.check().is_err() {
        headers.0.pop();
    }
}

/// Later versions begin like this one, and are told on as this one.
fn checked(text: &str) -> Option<String> {
    let (head, rest) = text.split_at_checked(LENGTH)?;
    let parts: Vec<&str> = head.split('-').collect();
    let [version, trace, parent, flags] = parts[..] else { return None };
    let is_hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |part: &str, length| is_hex(part, length) && part.bytes().any(|byte| byte != b'0');
    let sound =
        is_hex(version, 2) && version != "ff" && is_id(trace, 32) && is_id(parent, 16) && is_hex(flags, 2);
    let ends = if version == "00" { rest.is_empty() } else { rest.is_empty() || rest.starts_with('-') };
    (sound && ends).then(|| format!("00-{trace}-{parent}-{flags}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_is_taken_as_the_standard_says_or_ignored() {
        assert_eq!(checked(SOUND).as_deref(), Some(SOUND));
        for later in [SOUND.replacen("00", "01", 1), format!("cc{}-more", &SOUND[2..])] {
            assert_eq!(checked(&later).as_deref(), Some(SOUND), "{later}");
        }
        for wrong in [
            "",
            "00",
            &SOUND[1..],
            &format!("{SOUND}-more"),
            &SOUND.to_ascii_uppercase(),
            &SOUND.replacen("00", "ff", 1),
            &SOUND.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &SOUND.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &SOUND.replace('-', "_"),
            &format!("{}\u{fc}", &SOUND[..54]),
        ] {
            assert_eq!(checked(wrong), None, "{wrong}");
        }
        let twice: HeaderMap = [SOUND, SOUND]
            .map(|value| (http::HeaderName::from_static(NAME), value.parse().unwrap()))
            .into_iter()
            .fold(HeaderMap::new(), |mut map, (name, value)| {
                map.append(name, value);
                map
            });
        assert_eq!(of_request(&twice), None);
    }

    #[test]
    fn a_message_keeps_its_own_trace_and_its_room() {
        let mut own = Headers(vec![("TraceParent".to_owned(), "mine".to_owned())]);
        add(&mut own, Some(SOUND));
        assert_eq!(own.0.len(), 1);
        let mut many = Headers((0..Headers::COUNT_MAX).map(|n| (format!("h{n}"), String::new())).collect());
        add(&mut many, Some(SOUND));
        assert_eq!(many.0.len(), Headers::COUNT_MAX);
        let mut none = Headers::default();
        add(&mut none, Some(SOUND));
        assert_eq!(none.0, [(NAME.to_owned(), SOUND.to_owned())]);
    }
}
