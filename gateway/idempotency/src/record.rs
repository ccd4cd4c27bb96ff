//! The idempotency record of an operation, and how the version of its node encodes its state.
//!
//! ZooKeeper deletes a node by path and version, and versions begin anew when a node is made anew. So a late delete
//! could hit a later record of the same operation. Therefore the version encodes the state of the record, in the same
//! way each time the node is created:
//!
//! | version | state | next |
//! |---|---|---|
//! | 3 n | admitted | done, aborted |
//! | 3 n + 1 | done, aborted | outlived; an aborted one may also be admitted again (two steps in one transaction) |
//! | 3 n + 2 | outlived | deleted, admitted again |
//!
//! Deletes are for versions 3 n + 2 only, so a deleted record was always outlived.

use fencegate_policies::{key::ResourceKey, token::FencingToken};
use fencegate_process::{clock::unix_seconds, randomness::Guid};
use serde::{Deserialize, Serialize};

use super::{OperationOutcome, OperationToRecord, quota::OperationQuotaOwner};

/// The newest format of a record that this build can read, and the one that it writes.
pub const FORMAT: u32 = 1;

/// The data of an operation's node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRecord {
    pub format: u32,
    /// The attempt that wrote the record. After a lost answer the writer recognizes its own record by this.
    pub attempt: String,
    pub fingerprint: String,
    pub keys: Vec<ResourceKey>,
    /// The parent of the lock node of the first key; only set if the route has another lock site than the native one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    pub token: FencingToken,
    pub method: String,
    /// Path and query of the request, cut to [`MAX_TARGET_LEN`].
    pub target: String,
    /// The `Idempotency-Key` of the request. A probe queries the upstream with this key.
    pub name: Option<String>,
    /// The owner against whose quota the operation counts. Builds that named operations by their upstream wrote none.
    #[serde(default)]
    pub owner: Option<OperationQuotaOwner>,
    /// The time of the admission, in seconds of the wall clock since 1970.
    pub admitted: u64,
    /// The time for which the record is kept after the end of the operation, in seconds.
    pub keep: u64,
    pub state: OperationState,
}

/// The recorded state of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum OperationState {
    /// The request may have been sent. If it is not running now, its outcome is unknown.
    Admitted,
    /// The operation is finished. `at`: the time, in seconds by the wall clock of the writer. `status`: `None` if an
    /// operator wrote the record.
    Done { at: u64, status: Option<u16> },
    /// Nothing was sent, so a repeat may run.
    Aborted { at: u64 },
    /// The record is about to be deleted, and counts as missing.
    Outlived,
}

const MAX_TARGET_LEN: usize = 512;

impl OperationRecord {
    pub fn new(wanted: &OperationToRecord, attempt: Guid) -> Self {
        let OperationToRecord { operation, keys, nodes, token, method, target, name, owner, .. } = wanted;
        Self {
            format: FORMAT,
            attempt: attempt.to_string(),
            fingerprint: operation.fingerprint.to_string(),
            keys: keys.clone(),
            lock: keys.first().zip(nodes.first()).and_then(|(key, node)| foreign_lock_parent(key, node)),
            token: *token,
            method: method.clone(),
            target: target.chars().take(MAX_TARGET_LEN).collect(),
            name: name.clone(),
            owner: Some(owner.clone()),
            admitted: unix_seconds(),
            keep: operation.keep,
            state: OperationState::Admitted,
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain fields serialise")
    }

    /// Parses the data of an operation's node.
    ///
    /// # Errors
    /// Returns an error if the data is no record, or if a newer build wrote it.
    pub fn parse(data: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(data).map_err(|error| error.to_string())?;
        if record.format > FORMAT {
            return Err(format!("format {}, this build reads up to {FORMAT}", record.format));
        }
        Ok(record)
    }

    #[must_use]
    pub fn with_state(&self, state: OperationState) -> Self {
        Self { state, ..self.clone() }
    }

    /// Whether the record may be deleted. A record with an unknown outcome never may. `modified`: the time at which
    /// the node was last changed, by the clock of ZooKeeper's leader. Both times are in milliseconds since 1970.
    pub(crate) fn is_expired(&self, modified: u64, now: u64) -> bool {
        match self.state {
            OperationState::Admitted => false,
            OperationState::Done { .. } => self.retention_end(modified) < now,
            OperationState::Aborted { .. } | OperationState::Outlived => true,
        }
    }

    /// The time until which a finished operation is retained, in milliseconds since 1970. Its end is the later of two
    /// times: the one that ZooKeeper's leader wrote, and the one that the gateway wrote. So a single slow clock does
    /// not shorten the retention.
    pub(crate) fn retention_end(&self, modified: u64) -> u64 {
        let ended_at = match self.state {
            OperationState::Done { at, .. } | OperationState::Aborted { at } => at.saturating_mul(1000),
            OperationState::Admitted | OperationState::Outlived => 0,
        };
        modified.max(ended_at).saturating_add(self.keep.saturating_mul(1000))
    }

    /// Whether a repeat of the operation may run.
    pub(crate) fn can_rerun(&self) -> bool {
        matches!(self.state, OperationState::Aborted { .. } | OperationState::Outlived)
    }
}

/// The parent of a lock node that is shared with other programs; `None` for a native one.
fn foreign_lock_parent(key: &ResourceKey, node: &str) -> Option<String> {
    let (parent, _) = node.rsplit_once('/')?;
    let native = format!("/locks/{:02x}/{}", key.lock_shard(), key.lock_segment());
    (!parent.ends_with(&native)).then(|| parent.to_owned())
}

impl From<OperationOutcome> for OperationState {
    fn from(came: OperationOutcome) -> Self {
        let at = unix_seconds();
        match came {
            OperationOutcome::Done(status) => Self::Done { at, status: Some(status) },
            OperationOutcome::NotExecuted => Self::Aborted { at },
        }
    }
}

/// The number of writes in one transaction after which a node of this version has a version that means `admitted`.
pub(crate) fn writes_to_admit(version: i32) -> usize {
    3 - usize::try_from(version.rem_euclid(3)).expect("below 3")
}

/// Whether a node of this version may be marked as outlived.
pub(crate) fn can_mark_outlived(version: i32) -> bool {
    version.rem_euclid(3) == 1
}

/// Whether a node of this version may be deleted.
pub(crate) fn is_deletable(version: i32) -> bool {
    version.rem_euclid(3) == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record that is admitted again gets a version that means neither finished nor outlived.
    #[test]
    fn readmitted_record_has_admitted_version() {
        for version in [1, 2, 4, 5, 1000] {
            let next = version + i32::try_from(writes_to_admit(version)).expect("small");
            assert!(next % 3 == 0 && !can_mark_outlived(next) && !is_deletable(next), "{version} {next}");
            let states = [can_mark_outlived(version), is_deletable(version)];
            assert_eq!(states, [version % 3 == 1, version % 3 == 2], "{version}");
        }
    }

    fn admitted_record() -> OperationRecord {
        OperationRecord {
            format: FORMAT,
            attempt: String::new(),
            fingerprint: String::new(),
            keys: Vec::new(),
            lock: None,
            token: FencingToken::new(1, 0, 1).expect("a token"),
            method: "POST".into(),
            target: "/".into(),
            name: None,
            owner: None,
            admitted: 0,
            keep: 10,
            state: OperationState::Admitted,
        }
    }

    /// An operation without a known outcome never expires; a done one expires after its retention time.
    #[test]
    fn unknown_operation_never_expires() {
        let record = admitted_record();
        assert!(!record.is_expired(0, u64::MAX));
        let done = record.with_state(OperationState::Done { at: 7, status: Some(200) });
        assert!(!done.is_expired(7_000, 17_000) && done.is_expired(7_000, 17_001));
        assert_eq!(OperationRecord::parse(&done.to_bytes()), Ok(done));
        let newer = OperationRecord { format: FORMAT + 1, ..record };
        assert!(OperationRecord::parse(&newer.to_bytes()).is_err());
    }

    /// The parent of a lock node among those of other programs is recovered from its path; a native lock node gives
    /// none.
    #[test]
    fn foreign_lock_parent_is_recovered() {
        let key = ResourceKey::parse("order/42").expect("a key");
        assert_eq!(foreign_lock_parent(&key, "/fencegate/locks/76/order%2F42/x-w-0000000001"), None);
        let parent = Some("/app/locks/42".to_owned());
        assert_eq!(foreign_lock_parent(&key, "/app/locks/42/x__lock__0000000001"), parent);
    }

    /// If one clock was behind when an operation ended, its retention does not end earlier.
    #[test]
    fn slow_clock_never_shortens_retention() {
        let right = 1_000_000;
        let behind = 10;
        for (leader, gateway) in [(right, right), (behind, right), (right, behind)] {
            let done = admitted_record().with_state(OperationState::Done { at: gateway, status: Some(200) });
            assert_eq!(done.retention_end(leader * 1000), (right + done.keep) * 1000, "{leader} {gateway}");
            assert!(!done.is_expired(leader * 1000, right * 1000), "{leader} {gateway}");
        }
    }
}
