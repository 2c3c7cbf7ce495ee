use std::collections::BTreeMap;

use tidegate_domain::{Lane, QueueName};

/// Which queues travel over the bus, and under which name: that of the normal lane; the other lanes' stand beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes(BTreeMap<QueueName, String>);

impl Routes {
    pub fn new(names: impl IntoIterator<Item = (QueueName, String)>) -> Self {
        Self(names.into_iter().collect())
    }

    /// The name of a queue's lane on the bus: `sms-outbound`, `sms-outbound.high`, `sms-outbound.low`.
    pub fn name(&self, queue: &QueueName, lane: Lane) -> Option<String> {
        let base = self.0.get(queue)?;
        Some(match lane {
            Lane::High => format!("{base}.high"),
            Lane::Normal => base.clone(),
            Lane::Low => format!("{base}.low"),
        })
    }

    pub fn contains(&self, queue: &QueueName) -> bool {
        self.0.contains_key(queue)
    }

    pub fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.0.keys()
    }

    /// Of every queue and lane.
    pub fn names(&self) -> Vec<String> {
        let lanes = |queue| Lane::ALL.into_iter().filter_map(move |lane| self.name(queue, lane));
        self.0.keys().flat_map(lanes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_stand_beside_the_normal_one() {
        let sms = QueueName::new("sms").unwrap();
        let routes = Routes::new([(sms.clone(), "sms-outbound".to_owned())]);
        assert_eq!(routes.name(&sms, Lane::Normal).unwrap(), "sms-outbound");
        assert_eq!(routes.names(), ["sms-outbound.high", "sms-outbound", "sms-outbound.low"]);
        assert_eq!(routes.name(&QueueName::new("other").unwrap(), Lane::Low), None);
    }
}
