use tidegate_domain::limits::slot::{BusinessHours, Calendar, Period, SlotRule};
use tidegate_domain::limits::{Deferrals, Quota};
use tidegate_domain::transfer::{
    Books, Ended, Entry, Fate, Inventory, KeyEntry, Manifest, MessageEntry, QueueEntry, QuotaEntry,
    SlotEntry, Stock,
};
use tidegate_domain::{
    AttemptRecord, AttemptResult, EventId, Fingerprint, Headers, IdempotencyKey, Lane, QueueName, Recipient,
    SlotConfig, SlotConfigName, Status, Timestamp, UserId,
};

use super::{ArchiveReader, ArchiveWriter};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn message(seq: u64, body: &'static [u8], fate: Fate) -> Entry {
    let attempt = |number, result, reason: Option<&str>| AttemptRecord {
        number,
        at: at(7),
        latency_ms: u64::from(number),
        result,
        reason: reason.map(str::to_owned),
    };
    Entry::Message(Box::new(MessageEntry {
        seq,
        admitted_at: at(-5),
        queue: QueueName::new("sms").unwrap(),
        recipient: seq.is_multiple_of(2).then(|| Recipient::new("an\"a\u{2028}").unwrap()),
        lane: Lane::Low,
        user: (seq == 2).then(|| UserId::new("bob").unwrap()),
        due_at: at(i64::MAX),
        expires_at: (seq == 2).then(|| at(9)),
        headers: Headers(vec![("a".into(), "1".into()), ("a".into(), "\\".into())]),
        ack_required: seq == 2,
        body: bytes::Bytes::from_static(body),
        attempts: vec![
            attempt(1, AttemptResult::Failed, Some("busy\n\0")),
            attempt(3, AttemptResult::Accepted, None),
            attempt(4, AttemptResult::Requeued, None),
        ],
        fate,
    }))
}

fn ended(status: Status, attempt: Option<(u32, u64)>) -> Fate {
    Fate::Ended(Ended { status, at: at(8), attempt, reason: attempt.map(|_| "no such number".into()) })
}

fn entries() -> Vec<Entry> {
    let mut deferrals = Deferrals::default();
    deferrals.restore(at(60_000), 3);
    let quota = Quota { count: 4, exempts_high: true, ..Quota::new(5, 60_000, at(1)) };
    let hours = BusinessHours::new("Europe/Berlin", &["MON".into(), "SUN".into()], "22:00", "24:00").unwrap();
    let calendar =
        Calendar { blackouts: vec![Period { from: at(1), to: at(2) }], business_hours: Some(hours) };
    let config = SlotConfigName::new("payments").unwrap();
    let rule = SlotRule { max_per_window: 3, window_ms: 4_000, headroom_windows: u64::MAX, calendar };
    vec![
        Entry::Queue(QueueEntry { name: QueueName::new("sms").unwrap(), paused: true }),
        Entry::Quota(QuotaEntry { user: UserId::new("bob").unwrap(), quota, deferrals }),
        Entry::SlotConfig(SlotConfig { name: config.clone(), version: 1, rule, created_at: at(3) }),
        Entry::Slot(SlotEntry {
            event: EventId::new("pay-1").unwrap(),
            config,
            generation: 1,
            window: -4,
            requested: at(4),
            scheduled: at(5),
            created_at: at(6),
            message: Some(2),
        }),
        message(2, b"text with \"quotes\"\n", Fate::Pending { place: 9, spent: 4, failures: 0, acks: 1 }),
        message(3, b"\xff\x00\xfe", ended(Status::Dead, Some((5, 17)))),
        message(4, b"", ended(Status::Expired, None)),
        Entry::Key(KeyEntry {
            key: IdempotencyKey([0xfe; 16]),
            fingerprint: Fingerprint([1; 16]),
            seq: 2,
            admitted_at: at(-5),
        }),
    ]
}

fn manifest() -> Manifest {
    let mut inventory = Inventory::default();
    entries().iter().for_each(|entry| inventory.count(entry));
    let books = Books { admitted: 5, delivered: 1, dead: 1, expired: 1, deleted: 1 };
    Manifest { salt: 77, seq_last: 9, token_last: 1 << 62, stock: Stock { inventory, books } }
}

fn archive() -> Vec<u8> {
    let mut writer = ArchiveWriter::begin(Vec::new(), &manifest()).unwrap();
    writer.write(entries()).unwrap();
    assert_eq!(*writer.written(), manifest().stock.inventory);
    writer.finish().unwrap()
}

fn read(archive: &[u8]) -> Result<(Manifest, Vec<Entry>), String> {
    let whole = || {
        let (mut reader, manifest) = ArchiveReader::begin(archive)?;
        let mut found = Vec::new();
        loop {
            let batch = reader.next()?;
            if batch.is_empty() {
                return Ok((manifest, found));
            }
            found.extend(batch);
        }
    };
    whole().map_err(|damage: super::Damage| damage.to_string())
}

#[test]
fn what_was_written_is_read_again() {
    assert_eq!(read(&archive()), Ok((manifest(), entries())));
}

#[test]
fn numbers_that_no_ledger_comes_to_are_refused() {
    let head = |change: fn(&mut Manifest)| {
        let mut manifest = manifest();
        change(&mut manifest);
        let archive = ArchiveWriter::begin(Vec::new(), &manifest).unwrap().finish().unwrap();
        read(&archive).unwrap_err()
    };
    for (said, wanted) in [
        (head(|manifest| manifest.salt = u32::MAX), "line 1: salt 4294967295 is larger"),
        (head(|manifest| manifest.seq_last = u64::MAX), "line 1: seqLast "),
        (head(|manifest| manifest.token_last = u64::MAX), "line 1: tokenLast "),
        (head(|manifest| manifest.stock.books.admitted = u64::MAX), "line 1: count "),
    ] {
        assert!(said.starts_with(wanted), "{said}");
    }
    let quota = Quota::new(5, 0, at(1));
    let entry = QuotaEntry { user: UserId::new("bob").unwrap(), quota, deferrals: Deferrals::default() };
    let mut writer = ArchiveWriter::begin(Vec::new(), &manifest()).unwrap();
    writer.write(vec![Entry::Quota(entry)]).unwrap();
    assert_eq!(read(&writer.finish().unwrap()).unwrap_err(), "line 2: a quota's window of 0 ms");
}

/// An archive may come from a ledger that still had it, or from an editor.
#[test]
fn the_text_of_a_deleted_message_is_not_read() {
    let deleted = message(5, b"a secret", ended(Status::Deleted, None));
    let mut writer = ArchiveWriter::begin(Vec::new(), &manifest()).unwrap();
    writer.write(vec![deleted.clone()]).unwrap();
    let (_, found) = read(&writer.finish().unwrap()).unwrap();
    let (Entry::Message(written), [Entry::Message(read)]) = (deleted, &found[..]) else {
        panic!("{found:?}")
    };
    assert_eq!(read.body, b""[..]);
    assert_eq!(read.headers, written.headers.erased());
    assert_eq!((&read.attempts, &read.fate), (&written.attempts, &written.fate));
}

#[test]
fn every_line_is_json() {
    let archive = archive();
    let lines: Vec<&str> = std::str::from_utf8(&archive).unwrap().lines().collect();
    assert_eq!(lines.len(), entries().len() + 2);
    for line in lines {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["sum"].as_str().unwrap().len(), 8, "{line}");
    }
}

#[test]
fn a_truncated_archive_is_refused_with_its_last_line() {
    let archive = archive();
    for length in 0..archive.len() {
        let said = read(&archive[..length]).unwrap_err();
        let line = archive[..length].iter().filter(|byte| **byte == b'\n').count() + 1;
        assert!(said.starts_with(&format!("line {line}: ")), "{length} bytes: {said}");
        assert!(said.contains("truncated"), "{length} bytes: {said}");
    }
}

#[test]
fn every_flipped_bit_is_found_where_it_is() {
    let archive = archive();
    for place in 0..archive.len() {
        for bit in 0..8 {
            let mut damaged = archive.clone();
            damaged[place] ^= 1 << bit;
            let said = read(&damaged).unwrap_err();
            let line = archive[..place].iter().filter(|byte| **byte == b'\n').count() + 1;
            assert!(said.starts_with(&format!("line {line}: ")), "byte {place}, bit {bit}: {said}");
        }
    }
}

#[test]
fn lines_that_are_missing_doubled_swapped_or_added_are_found() {
    let archive = archive();
    let lines: Vec<&[u8]> = archive.split_inclusive(|byte| *byte == b'\n').collect();
    for n in 0..lines.len() - 1 {
        let (mut missing, mut doubled, mut swapped) = (lines.clone(), lines.clone(), lines.clone());
        missing.remove(n);
        doubled.insert(n, lines[n]);
        swapped.swap(n, n + 1);
        for changed in [missing, doubled, swapped] {
            assert!(read(&changed.concat()).is_err(), "line {n}");
        }
    }
    let twice = [&archive[..], &archive[..]].concat();
    let said = read(&twice).unwrap_err();
    assert_eq!(said, format!("line {}: something follows the end", lines.len() + 1));
}

#[test]
fn other_files_and_other_versions_are_told_as_such() {
    assert!(read(b"hello\n").unwrap_err().starts_with("line 1: "));
    let text = String::from_utf8(archive()).unwrap();
    let first = text.lines().next().unwrap().replace("\"version\":1", "\"version\":2,\"more\":true");
    let (start, _) = first.split_once(",\"sum\"").unwrap();
    let newer = format!("{start},\"sum\":\"{:08x}\"}}\n", crc32fast::hash(start.as_bytes()));
    assert_eq!(
        read(newer.as_bytes()).unwrap_err(),
        "an archive of version 2, and this program reads version 1"
    );
}
