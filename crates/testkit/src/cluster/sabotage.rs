use anyhow::ensure;

use super::{Cluster, ClusterOptions};
use crate::services::Postgres;

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

    /// What a cluster must be told from the start.
    pub fn prepare(self, mut options: ClusterOptions) -> ClusterOptions {
        if self == Self::Durability {
            // Written to disk by somebody else, much later, and by nodes that do not turn it on for themselves.
            let settings = [("synchronous_commit", "off"), ("wal_writer_delay", "10s")];
            options.postgres.extend(settings.map(|(name, value)| (name.to_owned(), value.to_owned())));
            options.allow_unsafe_server = true;
        }
        options
    }

    /// Changes the ledger of a database.
    pub fn plant(self, server: &Postgres, database: &str) -> anyhow::Result<()> {
        let Some((function, from, to)) = self.change() else { return Ok(()) };
        let name = format!("{SCHEMA}.{function}");
        let definition = server.sql(database, &format!("SELECT pg_get_functiondef('{name}'::regproc)"))?;
        ensure!(definition.contains(from), "{name} has changed: there is no {from:?} in it");
        let search_path = format!("SET search_path TO {SCHEMA}");
        server.sql(database, &format!("{search_path}; {}", definition.replace(from, to)))?;
        Ok(())
    }

    /// A function, and what is changed in it.
    fn change(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Self::Order => Some(("heads", "AND p.is_head AND p.line_lane = p_lane", "AND p.lane = p_lane")),
            Self::Fencing => Some(("settle", "AND p.token = i.token AND p.ends_at > now", "")),
            // As it was when the statement began, whoever has charged it since.
            Self::Quota => Some((
                "admit",
                "SET count = o.count + a.charge",
                "SET count = (SELECT s.count FROM quota s WHERE s.user_id = a.user_id) + a.charge",
            )),
            Self::Durability => None,
        }
    }
}

impl Cluster {
    pub fn sabotage(&self, sabotage: Sabotage) -> anyhow::Result<()> {
        sabotage.plant(&self.postgres, "postgres")
    }
}
