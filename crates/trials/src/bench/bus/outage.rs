use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::{Bench, DELIVERED_WITHIN as PATIENCE};
use crate::figure::Figure;

const RECIPIENTS: usize = 1_000;
const BATCH: usize = 1_000;
/// After its return.
const DELIVERED_WITHIN: Duration = Duration::from_secs(60);

/// The broker is killed, messages are taken meanwhile, it comes back: how long until all are delivered, and whether in
/// order.
pub(super) async fn outage(bench: &mut Bench<'_>) -> anyhow::Result<Figure> {
    let (messages, away) = (bench.scale.outage_messages, bench.scale.outage);
    let pair = bench.pair("outage", true).await?;
    tokio::time::sleep(bench.broker.settles_within()).await;
    bench.broker.kill()?;
    let begun = Instant::now();
    for first in (0..messages).step_by(BATCH) {
        let message = |n: usize| {
            let recipient = n % RECIPIENTS;
            format!("{{\"recipient\":\"r{recipient}\",\"body\":\"r{recipient}#{}\"}}", n / RECIPIENTS)
        };
        let list: Vec<_> = (first..messages.min(first + BATCH)).map(message).collect();
        let body = format!("{{\"messages\":[{}]}}", list.join(","));
        pair.gateway.post_with("/api/v1/messages/batch", &[], &body).await?;
    }
    let taken = begun.elapsed();
    tokio::time::sleep(away.saturating_sub(taken)).await;
    tokio::task::block_in_place(|| bench.broker.restart())?;
    let back = Instant::now();
    pair.gateway.all_delivered(PATIENCE).await?;
    let after = back.elapsed();
    println!(
        "{messages} messages taken in {taken:.1?} while {} was away for {away:.1?}: delivered {after:.1?} after its return",
        bench.name
    );
    check_order(&std::fs::read_to_string(&pair.output)?, messages)?;
    let name = format!("bus_{}_outage", bench.name);
    Ok(Figure::head_room(&name, after.as_secs_f64(), DELIVERED_WITHIN.as_secs_f64()))
}

/// Every message once, and each recipient's in order.
fn check_order(output: &str, messages: usize) -> anyhow::Result<()> {
    let mut next: HashMap<&str, usize> = HashMap::new();
    let mut seen = 0;
    for line in output.lines() {
        let text = line.split_once("message=\"").and_then(|(_, rest)| rest.split('"').next());
        let (recipient, number) =
            text.and_then(|text| text.split_once('#')).with_context(|| line.to_owned())?;
        let expected = next.entry(recipient).or_default();
        ensure!(number.parse() == Ok(*expected), "{line}: number {expected} was expected");
        *expected += 1;
        seen += 1;
    }
    ensure!(seen == messages, "{seen} lines of {messages} messages");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_order_missing_or_twice_is_found() {
        let line = |text: &str| format!("SMS SENT id=1 recipient=\"r\" message=\"{text}\"\n");
        let sound = [line("r1#0"), line("r2#0"), line("r1#1")].concat();
        check_order(&sound, 3).unwrap();
        assert!(check_order(&sound, 4).is_err());
        for wrong in [["r1#0", "r1#0"], ["r1#1", "r1#0"], ["r1#0", "r1#2"]] {
            assert!(check_order(&wrong.map(line).concat(), 2).is_err(), "{wrong:?}");
        }
    }
}
