use anyhow::ensure;

use super::Cluster;

/// A fault planted in the ledger itself, to see the judge find it: a judge that can't say no proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Claims take any message of a recipient, not only the first.
    Order,
    /// A settlement counts whoever holds the lease by now.
    Fencing,
    /// A quota is read without waiting for whoever is charging it.
    Quota,
    /// Answers come before what they say is on disk.
    Durability,
}

const SCHEMA: &str = "tidegate";

impl Sabotage {
    pub const ALL: [Self; 4] = [Self::Order, Self::Fencing, Self::Quota, Self::Durability];

    /// What the server must be told from the start.
    pub fn settings(self) -> Vec<(String, String)> {
        match self {
            // Written to disk by somebody else, much later.
            Self::Durability => [("synchronous_commit", "off"), ("wal_writer_delay", "10s")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            _ => Vec::new(),
        }
    }

    /// A function, and what is changed in it.
    fn change(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Self::Order => Some(("heads", "AND p.is_head AND p.line_lane = p_lane", "AND p.lane = p_lane")),
            Self::Fencing => Some(("settle", "AND l.token = i.token AND l.ends_at > now", "")),
            Self::Quota => Some(("admit", "FOR UPDATE OF", "FOR KEY SHARE OF")),
            Self::Durability => None,
        }
    }
}

impl Cluster {
    pub fn sabotage(&self, sabotage: Sabotage) -> anyhow::Result<()> {
        let Some((function, from, to)) = sabotage.change() else { return Ok(()) };
        let name = format!("{SCHEMA}.{function}");
        let definition = format!("SELECT pg_get_functiondef('{name}'::regproc)");
        let definition = self.postgres.sql("postgres", &definition)?;
        ensure!(definition.contains(from), "{name} has changed: there is no {from:?} in it");
        let search_path = format!("SET search_path TO {SCHEMA}");
        self.postgres.sql("postgres", &format!("{search_path}; {}", definition.replace(from, to)))?;
        Ok(())
    }
}
