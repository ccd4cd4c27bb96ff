//! The data of the installation's node `{root}/meta`: the identity of the installation, and where the tokens of its era
//! begin.

use serde::{Deserialize, Serialize};

/// The content of `{root}/meta`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallationMeta {
    /// The version of the format of this content.
    pub format: u32,
    /// Names the installation; a guard serves one only.
    pub uuid: String,
    pub era: u64,
    /// The base of the era. An epoch is the base plus a node's czxid, so that tokens of a later era are larger than all
    /// earlier tokens.
    pub base: u64,
    /// Set when a rollback of ZooKeeper was found. Then no gateway grants a lock before the next era.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspect: Option<ZooKeeperRollbackEvidence>,
}

/// A gateway's evidence of a rollback of ZooKeeper: it has seen a larger epoch, or a later era, than this state can
/// have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZooKeeperRollbackEvidence {
    /// The largest epoch that the gateway knows.
    pub highest: u64,
    /// The latest era that the gateway knows.
    pub era: u64,
    /// The gateway that reported it.
    pub by: String,
}

/// The newest format that this build can read: the one with `suspect`. Older builds do not know that field, so they
/// have to refuse the format.
pub const FORMAT: u32 = 2;

/// The format of a `meta` without `suspect`.
pub(crate) const UNMARKED: u32 = 1;

/// The highest base: czxids are added to it, and the sum has to fit into 64 bits.
pub(crate) const HIGHEST_BASE: u64 = 1 << 62;

impl InstallationMeta {
    /// Refuses numbers that no gateway can have written: a mistake must not become the base of all tokens.
    pub fn validate_epochs(&self) -> Result<(), String> {
        if self.base > HIGHEST_BASE {
            return Err(format!("its base {} leaves no room for tokens", self.base));
        }
        match &self.suspect {
            Some(mark) if i64::try_from(mark.highest).is_err() => {
                Err(format!("no token can have the epoch {} that it is marked with", mark.highest))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation_meta(base: u64, highest: Option<u64>) -> InstallationMeta {
        let suspect = highest.map(|highest| ZooKeeperRollbackEvidence { highest, era: 1, by: "gw-1".into() });
        InstallationMeta { format: FORMAT, uuid: "ours".into(), era: 1, base, suspect }
    }

    /// A `meta` record whose base or highest seen epoch lies beyond all tokens is refused.
    #[test]
    fn meta_beyond_token_range_is_invalid() {
        assert_eq!(installation_meta(HIGHEST_BASE, Some(i64::MAX as u64)).validate_epochs(), Ok(()));
        assert!(installation_meta(HIGHEST_BASE + 1, None).validate_epochs().is_err());
        assert!(installation_meta(0, Some(1 << 63)).validate_epochs().is_err());
    }
}
