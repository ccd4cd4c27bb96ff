//! Records an operation before it is sent, and its outcome afterwards. This runs on the session's thread.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::operation::{OperationId, same_resource};
use fencegate_process::{failpoint, randomness::Guid};
use fencegate_recipe::lock_node::{REFUSED_PAUSE, RETRY_PAUSE};
use fencegate_zookeeper::session::{
    active_session::{ActiveSession, CurrentSession},
    client::{MultiError, MultiOp, NodeCreateMode, ZkClient, ZkError},
};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{
    OperationAdmissionRequest, OperationOutcome, OperationToRecord,
    error::AdmitOperationError,
    index::{CachedOperationShardCounts, OperationIndex},
    record::{OperationRecord, OperationState, writes_to_admit},
};

/// The write is tried this often: other requests may create or remove the node between the read and the write.
const MAX_ATTEMPTS: usize = 16;

/// The reason for which an operation was not admitted.
enum WriteOperationRecordError {
    Refused(AdmitOperationError),
    /// It is unknown whether the record was written. If it was, it has to be marked as never sent.
    Unsettled(AdmitOperationError),
}

impl WriteOperationRecordError {
    fn session_ended() -> Self {
        Self::Unsettled(AdmitOperationError::Service("the session ended".into()))
    }

    /// Converts an error that came after the answer to the write was lost: the write may have been done.
    fn into_unsettled_error(self) -> Self {
        match self {
            Self::Refused(error @ AdmitOperationError::Service(_)) => Self::Unsettled(error),
            // The record that was found is another attempt's, so this attempt wrote none.
            other => other,
        }
    }
}

impl From<AdmitOperationError> for WriteOperationRecordError {
    fn from(error: AdmitOperationError) -> Self {
        Self::Refused(error)
    }
}

/// Runs one operation from before its admission until its outcome is recorded.
pub async fn run_operation<L: ZkClient>(
    current: Rc<CurrentSession<L>>,
    counts: Rc<CachedOperationShardCounts>,
    census: Arc<OperationIndex>,
    admission: OperationAdmissionRequest,
) {
    let OperationAdmissionRequest { wanted, answer, came, written } = admission;
    let Some(live) = current.session() else {
        return drop(answer.send(Err(AdmitOperationError::Service("there is no session".into()))));
    };
    let attempt = Guid::new(&*live.randomness);
    let _mark = census.mark_running(attempt);
    let node = OperationNodeWriter {
        id: wanted.operation.id,
        record: OperationRecord::new(&wanted, attempt),
        census,
    };
    let admitted = node.admit(&live, &counts, &wanted).await;
    // The session is released while the upstream works, because a session that is in use cannot be closed.
    drop(live);
    match admitted {
        Ok(version) => {
            let came = match answer.send(Ok(())) {
                Ok(()) => came.await.ok(),
                // The caller went away meanwhile, so nothing was sent.
                Err(_) => Some(OperationOutcome::NotExecuted),
            };
            match came {
                Some(came) => node.record_outcome(&current, Some(version), came.into()).await,
                None => {
                    node.census.record_unknown_outcome(attempt, node.id);
                    warn!(reference = node.id.reference(), token = %wanted.token, "once.unknown");
                }
            }
        }
        Err(WriteOperationRecordError::Refused(error)) => drop(answer.send(Err(error))),
        Err(WriteOperationRecordError::Unsettled(error)) => {
            drop(answer.send(Err(error)));
            node.record_outcome(&current, None, OperationOutcome::NotExecuted.into()).await;
        }
    }
    // Sending fails if the caller has stopped waiting for it.
    written.send(()).ok();
}

/// The node of one attempt at one operation.
struct OperationNodeWriter {
    id: OperationId,
    record: OperationRecord,
    census: Arc<OperationIndex>,
}

impl OperationNodeWriter {
    /// Writes the record. Returns the version of the node if this attempt wrote the record; only then may the request
    /// be sent.
    async fn admit<L: ZkClient>(
        &self,
        live: &ActiveSession<L>,
        counts: &CachedOperationShardCounts,
        wanted: &OperationToRecord,
    ) -> Result<i32, WriteOperationRecordError> {
        self.check_legacy_record(live, wanted).await?;
        let path = live.paths.operation_path(&self.id);
        let mut instead_of = None;
        for _ in 0..MAX_ATTEMPTS {
            let room = match instead_of {
                None => self.check_capacity(live, counts, wanted).await?,
                Some(_) => Ok(()),
            };
            let mut unheard = false;
            if room.is_ok() {
                match self.write_record(live, counts, wanted, instead_of).await {
                    Ok(version) => {
                        if instead_of.is_none() {
                            self.census.record_admitted(&self.id, &wanted.owner);
                        }
                        return Ok(version);
                    }
                    Err(MultiError { fault: ZkError::SessionEnded, .. }) => {
                        return Err(WriteOperationRecordError::session_ended());
                    }
                    Err(MultiError { step: Some(step), fault: ZkError::NoNode | ZkError::BadVersion })
                        if step < wanted.nodes.len() =>
                    {
                        return Err(AdmitOperationError::Lost.into());
                    }
                    Err(MultiError { fault: ZkError::NoNode, .. }) if instead_of.is_none() => {
                        create_shard(live, &self.id).await?;
                        continue;
                    }
                    Err(MultiError { fault: ZkError::Ambiguous(_), .. }) => unheard = true,
                    // Another attempt was faster, so read the record again.
                    Err(MultiError {
                        fault: ZkError::NodeExists | ZkError::NoNode | ZkError::BadVersion,
                        ..
                    }) => {}
                    Err(MultiError { fault, .. }) => {
                        return Err(AdmitOperationError::Service(fault.to_string()).into());
                    }
                }
            }
            let looked = read_record(live, &path).await;
            let found = if unheard {
                looked.map_err(WriteOperationRecordError::into_unsettled_error)?
            } else {
                looked?
            };
            instead_of = match found {
                None => {
                    room?;
                    None
                }
                Some((record, version)) if record.attempt == self.record.attempt => return Ok(version),
                Some((record, version)) if record.can_rerun() => Some(version),
                Some((record, _)) => return Err(self.rejection_for(&record).into()),
            };
        }
        Err(AdmitOperationError::Service("the record of the operation came and went".into()).into())
    }

    /// Refuses an operation that has a record under the name that a former build gave it. Gateways of such a build may
    /// run beside this one; see [`OperationIndex::may_have_legacy_names`] for how long this check is needed.
    async fn check_legacy_record<L: ZkClient>(
        &self,
        live: &ActiveSession<L>,
        wanted: &OperationToRecord,
    ) -> Result<(), WriteOperationRecordError> {
        let keep = Duration::from_secs(wanted.operation.keep);
        let may_know = || self.census.may_have_legacy_names(keep, live.clock.now());
        let Some(former) = wanted.operation.former.filter(|_| may_know()) else {
            return Ok(());
        };
        match read_record(live, &live.paths.operation_path(&former)).await? {
            Some((before, _)) if !before.can_rerun() => {
                let named = Self { id: former, record: self.record.clone(), census: self.census.clone() };
                Err(named.rejection_for(&before).into())
            }
            _ => Ok(()),
        }
    }

    /// Checks the capacity: the quota of the owner, and the bound of all operations.
    async fn check_capacity<L: ZkClient>(
        &self,
        live: &ActiveSession<L>,
        counts: &CachedOperationShardCounts,
        wanted: &OperationToRecord,
    ) -> Result<Result<(), AdmitOperationError>, WriteOperationRecordError> {
        let share = self.census.check_quota(&wanted.owner, wanted.memory);
        if share.is_err() {
            return Ok(share);
        }
        Ok(if counts.has_capacity(live, &self.id).await? { Ok(()) } else { Err(AdmitOperationError::Full) })
    }

    /// Writes the record in one transaction, which fails if the lock is not held or the operation is not new.
    async fn write_record<L: ZkClient>(
        &self,
        live: &ActiveSession<L>,
        counts: &CachedOperationShardCounts,
        wanted: &OperationToRecord,
        instead_of: Option<i32>,
    ) -> Result<i32, MultiError> {
        let path = live.paths.operation_path(&self.id);
        let shard = live.paths.operation_shard_path(&self.id);
        let data = self.record.to_bytes();
        let held = wanted.nodes.iter().map(|path| MultiOp::Check { path, version: ANY_VERSION });
        let mut steps: Vec<_> = held.collect();
        let version = match instead_of {
            None => {
                steps.push(MultiOp::Create { path: &path, data: &data, kind: NodeCreateMode::Persistent });
                0
            }
            Some(version) => {
                let writes = writes_to_admit(version);
                steps.push(MultiOp::Check { path: &path, version });
                steps.extend((0..writes).map(|_| MultiOp::Set { path: &path, data: &data }));
                version + i32::try_from(writes).expect("two at most")
            }
        };
        let written = live.client.commit(&steps);
        let seen = live.client.stat(&shard);
        failpoint::pass("after_operation_sent");
        let (written, seen) = tokio::join!(written, seen);
        if let Ok(Some(seen)) = seen {
            counts.record_count(&self.id, seen.children);
        }
        written.map(|_| version)
    }

    /// The refusal of a repeat, by the record that was found.
    fn rejection_for(&self, before: &OperationRecord) -> AdmitOperationError {
        match before.state {
            _ if before.fingerprint != self.record.fingerprint
                || !same_resource(&before.keys, &self.record.keys) =>
            {
                AdmitOperationError::Mismatch
            }
            OperationState::Admitted if self.census.is_running(&before.attempt) => {
                AdmitOperationError::InProgress
            }
            OperationState::Admitted => AdmitOperationError::Unknown { reference: self.id.reference() },
            OperationState::Done { status, .. } => AdmitOperationError::Done { status },
            OperationState::Aborted { .. } | OperationState::Outlived => {
                AdmitOperationError::Done { status: None }
            }
        }
    }

    /// Records the outcome of the attempt, through any session, for as long as it takes. `version`: the version of the
    /// node; if it is `None`, the node is read first. No session is held between two retries, because a session that
    /// is in use cannot be closed.
    async fn record_outcome<L: ZkClient>(
        &self,
        current: &CurrentSession<L>,
        mut version: Option<i32>,
        state: OperationState,
    ) {
        let data = self.record.with_state(state).to_bytes();
        loop {
            let live = wait_for_session(current).await;
            let path = live.paths.operation_path(&self.id);
            let expected = match version.take() {
                Some(version) => version,
                // The record may belong to a later attempt by now, so its attempt is read.
                None => match read_record(&live, &path).await {
                    Ok(Some((record, version)))
                        if record.attempt == self.record.attempt
                            && record.state == OperationState::Admitted =>
                    {
                        version
                    }
                    Ok(_) => return,
                    // This session can read all that it writes, so the record is another attempt's and stays.
                    Err(WriteOperationRecordError::Refused(AdmitOperationError::Foreign(_))) => return,
                    Err(WriteOperationRecordError::Unsettled(_)) => {
                        drop(live);
                        sleep(RETRY_PAUSE).await;
                        continue;
                    }
                    Err(WriteOperationRecordError::Refused(why)) => {
                        drop(live);
                        warn!(%why, reference = self.id.reference(), "once.not_written");
                        sleep(REFUSED_PAUSE).await;
                        continue;
                    }
                },
            };
            let steps = [
                MultiOp::Check { path: &path, version: expected },
                MultiOp::Set { path: &path, data: &data },
            ];
            let written = live.client.commit(&steps).await;
            drop(live);
            match written {
                Ok(_) => return,
                Err(MultiError { fault: ZkError::NoNode | ZkError::BadVersion, .. }) => {
                    return warn!(reference = self.id.reference(), "once.settled_by_somebody_else");
                }
                Err(MultiError { fault: ZkError::Ambiguous(_) | ZkError::SessionEnded, .. }) => {
                    sleep(RETRY_PAUSE).await
                }
                Err(failed) => {
                    warn!(%failed, reference = self.id.reference(), "once.not_written");
                    sleep(REFUSED_PAUSE).await;
                }
            }
        }
    }
}

/// Any version: the step only checks that the node exists.
const ANY_VERSION: i32 = -1;

/// The record at `path`, read after a `sync` with the leader.
async fn read_record<L: ZkClient>(
    live: &ActiveSession<L>,
    path: &str,
) -> Result<Option<(OperationRecord, i32)>, WriteOperationRecordError> {
    loop {
        let synced = live.client.sync(path);
        let read = live.client.data(path);
        return match tokio::join!(synced, read) {
            (Err(ZkError::SessionEnded), _) | (_, Err(ZkError::SessionEnded)) => {
                Err(WriteOperationRecordError::session_ended())
            }
            // This session was given up. All its operations may fail like this for ever, so do not retry.
            (Err(ZkError::Ambiguous(_)), _) | (_, Err(ZkError::Ambiguous(_)))
                if live.ended.is_cancelled() =>
            {
                Err(WriteOperationRecordError::session_ended())
            }
            (Err(ZkError::Ambiguous(why)), _) | (_, Err(ZkError::Ambiguous(why))) => {
                debug!(why, path, "looking again");
                sleep(RETRY_PAUSE).await;
                continue;
            }
            (_, Err(ZkError::NoNode)) => Ok(None),
            (Err(fault), _) | (_, Err(fault)) => Err(AdmitOperationError::Service(fault.to_string()).into()),
            (Ok(()), Ok((data, seen))) => match OperationRecord::parse(&data) {
                Ok(record) => Ok(Some((record, seen.version))),
                Err(error) => Err(AdmitOperationError::Foreign(error).into()),
            },
        };
    }
}

/// Creates the parents of an operation's node.
async fn create_shard<L: ZkClient>(
    live: &ActiveSession<L>,
    id: &OperationId,
) -> Result<(), WriteOperationRecordError> {
    for path in [live.paths.operations_path(), live.paths.operation_shard_path(id)] {
        match live.client.create(&path, b"", NodeCreateMode::Persistent).await {
            Ok(_) | Err(ZkError::NodeExists | ZkError::Ambiguous(_)) => {}
            Err(ZkError::SessionEnded) => return Err(WriteOperationRecordError::session_ended()),
            Err(fault) => return Err(AdmitOperationError::Service(fault.to_string()).into()),
        }
    }
    Ok(())
}

async fn wait_for_session<L>(current: &CurrentSession<L>) -> Rc<ActiveSession<L>> {
    loop {
        match current.session() {
            Some(live) => return live,
            None => current.wait_session_changed().await,
        }
    }
}
