use std::path::Path;

use super::cycle::{Subject, body, rate, runtime};
use super::{Scale, median, median_ratio};
use crate::figure::Figure;

/// Waiting messages per recipient in the second measurement.
const PER_RECIPIENT: u64 = 10;
/// Messages behind the blocked one, as a share of those that wait in the first two.
const BLOCKED_SHARE: usize = 10;

/// What a backlog costs those who are served, in its three shapes.
pub fn backlog(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = runtime()?;
    let body = body();
    let recipients = scale.waiting as u64 / PER_RECIPIENT;
    let mut empty = Subject::open(&dir.join("backlog-empty"))?;
    let mut single = Subject::open(&dir.join("backlog-single"))?;
    let mut chains = Subject::with_recipients(&dir.join("backlog-chains"), recipients)?;
    let mut blocked = Subject::open(&dir.join("backlog-blocked"))?;
    runtime.block_on(async {
        single.load(scale.waiting, &body).await?;
        chains.load(scale.waiting, &body).await?;
        blocked.block(scale.waiting / BLOCKED_SHARE, &body).await
    })?;
    let mut rates = [const { Vec::new() }; 4];
    for _ in 0..scale.cycle_rounds {
        for (rates, subject) in rates.iter_mut().zip([&mut empty, &mut single, &mut chains, &mut blocked]) {
            rates.push(rate(scale, || runtime.block_on(subject.cycle(&body)))?);
        }
    }
    let [_, single, chains, blocked] = rates.each_ref().map(|of| median_ratio(of, &rates[0]));
    let figures = vec![
        Figure::ratio("claims_with_one_queue_waiting_vs_empty", single, 0.8),
        Figure::ratio("claims_with_recipients_waiting_vs_empty", chains, 0.8),
        Figure::ratio("claims_beside_a_blocked_recipient_vs_empty", blocked, 0.95),
    ];
    let [empty, single, chains, blocked] = rates.map(median);
    println!(
        "cycle: empty {empty:.0}/s; {} waiting {single:.0}/s; on {recipients} recipients {chains:.0}/s; one \
         recipient blocked with {} behind it {blocked:.0}/s",
        scale.waiting,
        scale.waiting / BLOCKED_SHARE
    );
    Ok(figures)
}
