//! Lists operations with an unknown outcome for an operator, and resolves them, directly in ZooKeeper.

use std::time::Duration;

use fencegate_process::{clock::unix_seconds, command_hint};
use fencegate_recipe::node_data;
use fencegate_zookeeper::session::{
    client::{MultiError, MultiOp, NodeStat, ZkClient, ZkError},
    paths::ZkPaths,
};

use super::record::{OperationRecord, OperationState};

/// An operation that was admitted and has no recorded outcome.
#[derive(Debug, Clone)]
pub struct UnresolvedOperation {
    pub reference: String,
    pub record: OperationRecord,
    /// Whether the lock under which the operation was sent is still held, so that the operation may be running now.
    pub may_run: bool,
    path: String,
    version: i32,
}

/// The reason for which operations could not be listed or resolved.
#[derive(Debug, thiserror::Error)]
pub enum ResolveOperationError {
    #[error("cannot read {path}")]
    Read { path: String, source: ZkError },
    #[error(
        "no operation with an unknown outcome has the reference `{0}`; `{list}` shows those with one",
        list = command_hint::command_line(command_hint::CommandHintTarget::Gateway, "once list")
    )]
    NotFound(String),
    #[error("`{0}` is the beginning of more than one reference; give more of it")]
    Several(String),
    #[error("the lock of operation {0} is still held, so it may be running now; wait, or add `--force`")]
    MayRun(String),
    #[error(
        "operation {reference} may still be begun for another {left} s; ask the service again then, or add `--force`"
    )]
    MayBegin { reference: String, left: u64 },
    #[error("cannot record the outcome of operation {reference}")]
    Write { reference: String, source: MultiError },
}

/// All unresolved operations. `base`: the base of the era, with which locks are identified by their tokens.
pub async fn list_unresolved(
    link: &impl ZkClient,
    paths: &ZkPaths,
    base: u64,
) -> Result<Vec<UnresolvedOperation>, ResolveOperationError> {
    let mut open = Vec::new();
    for shard in children(link, &paths.operations_path()).await? {
        let shard = format!("{}/{shard}", paths.operations_path());
        for name in children(link, &shard).await? {
            open.extend(read_unresolved(link, paths, base, &shard, &name).await?);
        }
    }
    open.sort_by_key(|open| open.record.admitted);
    Ok(open)
}

/// Reads an operation. `None` if its outcome is known, or if the record is gone or unreadable.
async fn read_unresolved(
    link: &impl ZkClient,
    paths: &ZkPaths,
    base: u64,
    shard: &str,
    name: &str,
) -> Result<Option<UnresolvedOperation>, ResolveOperationError> {
    let path = format!("{shard}/{name}");
    let (data, seen) = match link.data(&path).await {
        Ok(read) => read,
        Err(ZkError::NoNode) => return Ok(None),
        Err(source) => return Err(ResolveOperationError::Read { path, source }),
    };
    let Some(record) =
        OperationRecord::parse(&data).ok().filter(|record| record.state == OperationState::Admitted)
    else {
        return Ok(None);
    };
    let may_run = is_lock_held(link, paths, base, &record)
        .await
        .map_err(|source| ResolveOperationError::Read { path: paths.locks_path(), source })?;
    let reference = name.get(..REFERENCE).unwrap_or(name).to_owned();
    Ok(Some(UnresolvedOperation { reference, record, may_run, path, version: seen.version }))
}

/// The number of digits of an [`fencegate_policies::operation::OperationId::reference`].
const REFERENCE: usize = 16;
/// The number of its first digits that name the shard, as in [`ZkPaths::operation_shard_path`].
const SHARD: usize = 2;

/// Finds the unresolved operation with this reference. Only records with a matching name are read.
pub async fn find_unresolved(
    link: &impl ZkClient,
    paths: &ZkPaths,
    base: u64,
    reference: &str,
) -> Result<UnresolvedOperation, ResolveOperationError> {
    let not_found = || ResolveOperationError::NotFound(reference.to_owned());
    let digits = reference.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !digits || reference.len() != REFERENCE {
        return Err(not_found());
    }
    let shard = format!("{}/{}", paths.operations_path(), &reference[..SHARD]);
    let mut found = Vec::new();
    for name in children(link, &shard).await?.iter().filter(|name| name.starts_with(reference)) {
        found.extend(read_unresolved(link, paths, base, &shard, name).await?);
    }
    match (found.pop(), found.is_empty()) {
        (Some(open), true) => Ok(open),
        (Some(_), false) => Err(ResolveOperationError::Several(reference.to_owned())),
        (None, _) => Err(not_found()),
    }
}

impl UnresolvedOperation {
    /// Whether the operation may be resolved. `within`: the time after its admission until which a dispatch may be
    /// started, by the wall clock; a second is added for the whole seconds of the record. A service that reports that
    /// the operation was not done only knows the past: until that time has passed, the request may still arrive.
    ///
    /// # Errors
    /// Returns an error if the operation may be running, or if it is to be resolved as not done and may still be
    /// started.
    pub fn check_resolvable(&self, done: bool, within: Duration) -> Result<(), ResolveOperationError> {
        let reference = self.reference.clone();
        if self.may_run {
            return Err(ResolveOperationError::MayRun(reference));
        }
        let until = self.record.admitted.saturating_add(within.as_secs()).saturating_add(1);
        let left = until.saturating_sub(unix_seconds());
        if !done && left > 0 {
            return Err(ResolveOperationError::MayBegin { reference, left });
        }
        Ok(())
    }

    /// Records an operator's decision: the operation was done, or it was never executed.
    pub async fn resolve(&self, link: &impl ZkClient, done: bool) -> Result<(), ResolveOperationError> {
        let at = unix_seconds();
        let state =
            if done { OperationState::Done { at, status: None } } else { OperationState::Aborted { at } };
        let data = self.record.with_state(state).to_bytes();
        let steps = [
            MultiOp::Check { path: &self.path, version: self.version },
            MultiOp::Set { path: &self.path, data: &data },
        ];
        let written = link.commit(&steps).await;
        written
            .map(drop)
            .map_err(|source| ResolveOperationError::Write { reference: self.reference.clone(), source })
    }
}

async fn children(link: &impl ZkClient, path: &str) -> Result<Vec<String>, ResolveOperationError> {
    match link.children(path).await {
        Ok(children) => Ok(children),
        Err(ZkError::NoNode) => Ok(Vec::new()),
        Err(source) => Err(ResolveOperationError::Read { path: path.to_owned(), source }),
    }
}

/// Whether the lock node from which the token was made still exists.
pub(super) async fn is_lock_held(
    link: &impl ZkClient,
    paths: &ZkPaths,
    base: u64,
    record: &OperationRecord,
) -> Result<bool, ZkError> {
    let Some(key) = record.keys.first() else { return Ok(false) };
    let parent = record.lock.clone().unwrap_or_else(|| paths.native_lock_parent_path(key));
    let nodes = match link.children(&parent).await {
        Err(ZkError::NoNode) => return Ok(false),
        nodes => nodes?,
    };
    let makes_the_token = |seen: NodeStat| {
        let epoch = u64::try_from(seen.czxid).ok().and_then(|czxid| czxid.checked_add(base));
        epoch == Some(record.token.number())
    };
    for name in nodes {
        let (says, seen) = match link.data(&format!("{parent}/{name}")).await {
            Err(ZkError::NoNode) => continue,
            read => read?,
        };
        if makes_the_token(seen) {
            return Ok(true);
        }
        // This lock node only queues for an exclusive node. The token is made of the czxid of the exclusive node, so
        // that node is read.
        if let Some(path) = node_data::parse_exclusive_path(&says)
            && link.stat(path).await?.is_some_and(makes_the_token)
        {
            return Ok(true);
        }
    }
    Ok(false)
}
