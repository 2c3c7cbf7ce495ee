use super::LedgerSettings;
use super::queues::ChannelKind;
use super::reader::Reader;

/// What a process does, where several share a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Everything.
    #[default]
    All,
    /// Takes requests.
    Gateway,
    /// Pushes queues out.
    Sender,
}

const ROLES: [(&str, Role); 3] = [("all", Role::All), ("gateway", Role::Gateway), ("sender", Role::Sender)];

impl Role {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Gateway => "gateway",
            Self::Sender => "sender",
        }
    }

    pub fn serves_api(self) -> bool {
        self != Self::Sender
    }

    /// Devices are connected to those that take requests, so an inbox is filled there and nowhere else.
    pub fn pushes(self, channel: ChannelKind) -> bool {
        match self {
            Self::All => true,
            Self::Gateway => channel == ChannelKind::Inbox,
            Self::Sender => channel != ChannelKind::Inbox,
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>, ledger: Option<&LedgerSettings>) -> Option<Self> {
        let role = reader.one_of("server.role", &ROLES)?;
        if let (Some(LedgerSettings::Embedded(_)), true) = (ledger, role != Self::All) {
            let what = format!(
                "{:?} needs a ledger that processes share, and a directory belongs to one",
                role.as_str()
            );
            let fix = "choose \"all\", or ledger.kind = \"postgres\"";
            reader.problem_with_fix("server.role", what, fix);
        }
        Some(role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::load;

    #[test]
    fn a_directory_is_not_for_several_processes() {
        assert_eq!(load("").unwrap().settings.role, Role::All);
        for role in ["gateway", "sender"] {
            let refused = load(&format!("[server]\nrole = \"{role}\"\n")).unwrap_err();
            assert!(refused.contains("tidegate.toml:2: server.role: "), "{refused}");
            assert!(refused.contains("a directory belongs to one"), "{refused}");
            let text = format!("[server]\nrole = \"{role}\"\n[ledger]\nkind = \"postgres\"\n");
            assert_eq!(load(&text).unwrap().settings.role.as_str(), role);
        }
        let slip = load("[server]\nrole = \"sendr\"\n").unwrap_err();
        assert!(slip.contains("did you mean \"sender\"?"), "{slip}");
    }

    #[test]
    fn every_channel_is_pushed_by_gateways_or_by_senders() {
        for channel in ChannelKind::ALL {
            assert_ne!(Role::Gateway.pushes(channel), Role::Sender.pushes(channel));
            assert!(Role::All.pushes(channel));
        }
    }
}
