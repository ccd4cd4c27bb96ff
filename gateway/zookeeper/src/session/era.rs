//! The installation's identity, `{root}/meta`: created once, on purpose, and never silently; and the epochs of tokens,
//! which count from its base.
//!
//! A wiped ensemble counts its transactions from one again, and so would the tokens. A gateway that finds no `meta`
//! therefore refuses to grant instead of creating one.

use fencegate_process::{
    command_hint,
    randomness::{Guid, Randomness},
};

use super::{
    client::{MultiError, MultiOp, NodeCreateMode, ZkClient, ZkError},
    paths::ZkPaths,
};
use crate::{
    error::GrantError,
    installation::{FORMAT, InstallationMeta, UNMARKED, ZooKeeperRollbackEvidence},
};

/// `meta` as read. Every heartbeat of a session checks that its version is still the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionedInstallationMeta {
    pub meta: InstallationMeta,
    pub version: i32,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadInstallationMetaError {
    #[error(
        "{path} does not exist; make it once with `{}`",
        command_hint::command_line(command_hint::CommandHintTarget::Gateway, "era init")
    )]
    Missing { path: String },
    #[error("{path} is of format {found}, this build reads up to {FORMAT}; upgrade the gateway")]
    Newer { path: String, found: u32 },
    #[error("{path} does not hold the record of an installation: {why}")]
    Foreign { path: String, why: String },
    #[error("cannot read {path}")]
    Fault { path: String, source: ZkError },
}

/// Errors of [`find_epoch_floor`].
#[derive(Debug, thiserror::Error)]
pub enum FindEpochFloorError {
    #[error("cannot create a node below {root}: {source}")]
    Make { root: String, source: MultiError },
    #[error("cannot read the node just created at {path}")]
    Read { path: String, source: ZkError },
    #[error("the node just created is gone, or its transaction gives no token")]
    NoEpoch,
}

/// Reads `meta`.
pub async fn read_meta(
    link: &impl ZkClient,
    paths: &ZkPaths,
) -> Result<VersionedInstallationMeta, ReadInstallationMetaError> {
    let path = paths.meta_path();
    let (data, seen) = match link.data(&path).await {
        Ok(read) => read,
        Err(ZkError::NoNode) => return Err(ReadInstallationMetaError::Missing { path }),
        Err(source) => return Err(ReadInstallationMetaError::Fault { path, source }),
    };
    let meta: InstallationMeta = match serde_json::from_slice(&data) {
        Ok(meta) => meta,
        Err(error) => return Err(ReadInstallationMetaError::Foreign { path, why: error.to_string() }),
    };
    if meta.format > FORMAT {
        return Err(ReadInstallationMetaError::Newer { path, found: meta.format });
    }
    if let Err(why) = meta.validate_epochs() {
        return Err(ReadInstallationMetaError::Foreign { path, why });
    }
    Ok(VersionedInstallationMeta { meta, version: seen.version })
}

/// The era and the base with which a new `meta` begins.
#[derive(Debug, Clone, Default)]
pub struct InitialEra {
    /// The uuid of an installation that was wiped and is to be continued; `None` for a new one.
    pub uuid: Option<String>,
    pub era: u64,
    pub base: u64,
}

/// Whether [`init_installation`] created `meta` or found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitInstallationOutcome {
    Made,
    Found,
}

/// Creates the root, its folders and `meta`, where missing. Never changes an existing `meta`. Safe to repeat, also by
/// several processes at once. `meta` is created with its base already in it, because a gateway may wait for `meta` and
/// use it at once.
///
/// # Errors
/// Returns [`ZkError::Ambiguous`] if an answer was lost: call this again.
pub async fn init_installation(
    link: &impl ZkClient,
    paths: &ZkPaths,
    beginning: InitialEra,
    randomness: &dyn Randomness,
) -> Result<InitInstallationOutcome, ZkError> {
    let root = paths.root();
    let ends = root.match_indices('/').map(|(at, _)| at).skip(1).chain([root.len()]);
    for end in ends {
        ensure_node(link, &root[..end]).await?;
    }
    ensure_node(link, &paths.members_path()).await?;
    ensure_node(link, &paths.locks_path()).await?;
    ensure_node(link, &paths.plans_path()).await?;
    let InitialEra { uuid, era, base } = beginning;
    let uuid = uuid.unwrap_or_else(|| Guid::new(randomness).to_string());
    let meta = InstallationMeta { format: UNMARKED, uuid, era, base, suspect: None };
    let data = serde_json::to_vec(&meta).expect("plain fields serialise");
    match link.create(&paths.meta_path(), &data, NodeCreateMode::Persistent).await {
        Ok(_) => Ok(InitInstallationOutcome::Made),
        Err(ZkError::NodeExists) => Ok(InitInstallationOutcome::Found),
        Err(fault) => Err(fault),
    }
}

async fn ensure_node(link: &impl ZkClient, path: &str) -> Result<(), ZkError> {
    match link.create(path, b"", NodeCreateMode::Persistent).await {
        Ok(_) | Err(ZkError::NodeExists) => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// An epoch that no token granted so far exceeds. It comes from a node that this function creates, in the era that was
/// read, and removes again: its czxid is above those of all earlier lock nodes.
pub async fn find_epoch_floor(
    link: &impl ZkClient,
    paths: &ZkPaths,
    era: &VersionedInstallationMeta,
    randomness: &dyn Randomness,
) -> Result<u64, FindEpochFloorError> {
    let meta = paths.meta_path();
    let path = paths.floor_probe_path(Guid::new(randomness));
    let steps = [
        MultiOp::Check { path: &meta, version: era.version },
        MultiOp::Create { path: &path, data: b"", kind: NodeCreateMode::Ephemeral },
    ];
    let made = link.commit(&steps).await;
    made.map_err(|source| FindEpochFloorError::Make { root: paths.root().to_owned(), source })?;
    let seen = link.stat(&path).await;
    // If the removal fails, the server removes the node with the session.
    drop(link.delete(&path).await);
    let seen = seen
        .map_err(|source| FindEpochFloorError::Read { path, source })?
        .ok_or(FindEpochFloorError::NoEpoch)?;
    token_epoch(era.meta.base, seen.czxid).map_err(|_| FindEpochFloorError::NoEpoch)
}

/// Records in `meta` that ZooKeeper was rolled back behind the evidence in `mark`. Every session then ends at its next
/// heartbeat, and no gateway makes a new one before the next era.
pub(crate) async fn record_rollback_evidence(
    link: &impl ZkClient,
    paths: &ZkPaths,
    era: &VersionedInstallationMeta,
    mark: ZooKeeperRollbackEvidence,
) -> Result<(), MultiError> {
    let meta = paths.meta_path();
    let before = era.meta.suspect.as_ref();
    let mark = ZooKeeperRollbackEvidence {
        highest: before.map_or(0, |before| before.highest).max(mark.highest),
        era: before.map_or(0, |before| before.era).max(mark.era),
        by: mark.by,
    };
    let marked = InstallationMeta { format: FORMAT, suspect: Some(mark), ..era.meta.clone() };
    let data = serde_json::to_vec(&marked).expect("plain fields serialise");
    let steps =
        [MultiOp::Check { path: &meta, version: era.version }, MultiOp::Set { path: &meta, data: &data }];
    link.commit(&steps).await.map(drop)
}

/// Whether `meta` is unchanged since it was read. Only a transaction can tell: a read from a follower or observer may
/// be old.
pub(crate) async fn is_meta_unchanged(
    link: &impl ZkClient,
    paths: &ZkPaths,
    era: &VersionedInstallationMeta,
) -> Result<bool, MultiError> {
    let meta = paths.meta_path();
    match link.commit(&[MultiOp::Check { path: &meta, version: era.version }]).await {
        Ok(_) => Ok(true),
        Err(MultiError { step: Some(0), fault: ZkError::BadVersion | ZkError::NoNode }) => Ok(false),
        Err(failed) => Err(failed),
    }
}

/// The epoch of an existing node. `None`: it is gone, or its transaction gives no token.
pub(crate) async fn node_epoch(link: &impl ZkClient, path: &str, base: u64) -> Result<Option<u64>, ZkError> {
    let seen = link.stat(path).await?;
    Ok(seen.and_then(|seen| token_epoch(base, seen.czxid).ok()))
}

/// Registers a session: creates its member node, but only if the era is still the one that was read. The same
/// transaction creates the nodes by which the session publishes its plan.
///
/// # Errors
/// Returns an error with step 0 if `meta` has changed or is gone, and with a step after step 1 if the server has
/// removed the plan.
pub(crate) async fn register_session(
    link: &impl ZkClient,
    paths: &ZkPaths,
    era: &VersionedInstallationMeta,
    member: &str,
    data: &[u8],
    namings: &[String],
) -> Result<(), MultiError> {
    let meta = paths.meta_path();
    let plans = paths.plans_path();
    let mut steps = vec![
        MultiOp::Check { path: &meta, version: era.version },
        MultiOp::Create { path: member, data, kind: NodeCreateMode::Ephemeral },
    ];
    if !namings.is_empty() {
        // This write wakes the gateways that watch the plans.
        steps.push(MultiOp::Set { path: &plans, data: b"" });
    }
    steps.extend(namings.iter().map(|path| MultiOp::Create {
        path,
        data: b"",
        kind: NodeCreateMode::Ephemeral,
    }));
    link.commit(&steps).await.map(drop)
}

/// The epoch of a token. A zxid above 2^63 reads as negative; that is an error, because a wrong token would be worse
/// than none.
pub fn token_epoch(base: u64, czxid: i64) -> Result<u64, GrantError> {
    u64::try_from(czxid)
        .ok()
        .filter(|czxid| *czxid > 0)
        .and_then(|czxid| base.checked_add(czxid))
        .filter(|epoch| i64::try_from(*epoch).is_ok())
        .ok_or_else(|| GrantError::Service(format!("czxid {czxid} gives no token")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `czxid` that is not positive, or that leads beyond the range of tokens, is an error.
    #[test]
    fn czxid_without_valid_epoch_fails() {
        assert_eq!(token_epoch(5, 7), Ok(12));
        for (base, czxid) in [(0, -1), (0, 0), (i64::MAX as u64, 1), (u64::MAX, 1)] {
            assert!(token_epoch(base, czxid).is_err(), "{base} {czxid}");
        }
    }
}
