//! The signs of a rollback of ZooKeeper, and the remedy for each.

use fencegate_process::command_hint::{self, CommandHintTarget};

/// ZooKeeper was rolled back: new tokens would not be above the tokens seen before, so no lock is granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("FG0503: {}: nothing is granted; {}", self.describe_rollback(), self.remedy())]
pub enum ZooKeeperRollbackError {
    /// The node that was created now has an epoch that is not above the highest epoch seen before.
    Epoch { epoch: u64, highest: u64 },
    /// `meta` has an older era of the same installation.
    OlderEra { known: u64, found: u64, highest: u64 },
    /// `meta` is of another installation, whose tokens begin below the tokens seen before.
    Another { known: String, found: String, highest: u64 },
    /// `meta` is of another installation than this process has served until now, whatever its tokens are.
    Exchanged { known: String, found: String, highest: u64 },
    /// `meta` existed, and is gone.
    Gone { path: String, highest: u64 },
    /// A peer has detected a rollback of ZooKeeper, and has marked `meta`.
    Suspect { highest: u64 },
}

impl ZooKeeperRollbackError {
    /// The highest epoch that is known to have been assigned.
    pub fn highest_epoch(&self) -> u64 {
        match self {
            Self::Epoch { highest, .. }
            | Self::OlderEra { highest, .. }
            | Self::Another { highest, .. }
            | Self::Exchanged { highest, .. }
            | Self::Gone { highest, .. }
            | Self::Suspect { highest } => *highest,
        }
    }

    fn describe_rollback(&self) -> String {
        match self {
            Self::Epoch { epoch, highest } => format!(
                "ZooKeeper was restored to an older state: a node made now has epoch {epoch}, and {highest} was seen before"
            ),
            Self::OlderEra { known, found, highest } => format!(
                "ZooKeeper was restored to an older state: it is in era {found}, and era {known} was seen, up to epoch {highest}"
            ),
            Self::Another { known, found, highest } => format!(
                "ZooKeeper was wiped or is another one: it has installation {found}, and this gateway has served {known}, up to epoch {highest}"
            ),
            Self::Exchanged { known, found, highest } => format!(
                "ZooKeeper was wiped or is another one: it has installation {found}, and this process serves {known}, up to epoch {highest}"
            ),
            Self::Gone { path, highest } => format!(
                "ZooKeeper was wiped or is another one: {path} is gone, and epochs up to {highest} were seen"
            ),
            Self::Suspect { highest } => format!(
                "ZooKeeper was restored to an older state: a gateway has seen epoch {highest}, and marked it"
            ),
        }
    }

    fn remedy(&self) -> String {
        let to_type = |verb: &str| {
            command_hint::command_line(
                CommandHintTarget::Gateway,
                &format!("{verb} --at-least {}", self.highest_epoch()),
            )
        };
        let bump = format!("`{}`", to_type("era bump"));
        match self {
            Self::Gone { .. } => format!(
                "if that is meant: `{}`; else correct `zookeeper.servers` and `root`",
                to_type("era init")
            ),
            Self::Exchanged { .. } => format!(
                "if that is meant: {bump}, and restart the gateway; else correct `zookeeper.servers` and `root`"
            ),
            Self::Another { .. } => {
                format!("if that is meant: {bump}; else correct `zookeeper.servers` and `root`")
            }
            _ => format!("{bump} makes larger tokens; the runbook says more under *Restoring ZooKeeper*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each rollback error has its code, the highest epoch seen and the `era` command that resolves it.
    #[test]
    fn every_message_names_cause_and_remedy() {
        let forms = [
            ZooKeeperRollbackError::Epoch { epoch: 7, highest: 4711 },
            ZooKeeperRollbackError::OlderEra { known: 3, found: 2, highest: 4711 },
            ZooKeeperRollbackError::Another { known: "one".into(), found: "other".into(), highest: 4711 },
            ZooKeeperRollbackError::Exchanged { known: "one".into(), found: "other".into(), highest: 4711 },
            ZooKeeperRollbackError::Gone { path: "/fencegate/meta".into(), highest: 4711 },
            ZooKeeperRollbackError::Suspect { highest: 4711 },
        ];
        for form in forms {
            let message = form.to_string();
            assert!(message.starts_with("FG0503: ZooKeeper was "), "{message}");
            assert!(message.contains("`fencegate era ") && message.contains("--at-least 4711"), "{message}");
        }
    }
}
