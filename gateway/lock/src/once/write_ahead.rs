//! Writes an operation down before it is sent, and what came of it afterwards; on the session's thread.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::operation::{OperationId, one_resource};
use fencegate_process::{failpoint, randomness::Guid};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{
    Admission, Came, Unwritten,
    census::Census,
    denied::Denied,
    record::{Record, State, writes_to_admit},
    shelves::Shelves,
};
use crate::{
    recipe::candidate::{AGAIN, PAUSE},
    session::{
        link::{Failed, Fault, Kind, Link, Step},
        live::{Current, Live},
    },
};

/// How often the write is tried again because other requests made or removed the node meanwhile.
const ROUNDS: usize = 16;

/// Why an operation was not admitted.
enum Stop {
    Refused(Denied),
    /// It is not known whether the record was written. If it was, it has to be marked as never sent.
    Unsettled(Denied),
}

impl Stop {
    fn session_ended() -> Self {
        Self::Unsettled(Denied::Service("the session ended".into()))
    }

    /// The same error for a write that was sent and may have been done.
    fn unheard(self) -> Self {
        match self {
            Self::Refused(why @ Denied::Service(_)) => Self::Unsettled(why),
            // The record that was found is another attempt's.
            other => other,
        }
    }
}

impl From<Denied> for Stop {
    fn from(why: Denied) -> Self {
        Self::Refused(why)
    }
}

/// Runs one operation from before its admission until its outcome is written down.
pub async fn serve<L: Link>(
    current: Rc<Current<L>>,
    shelves: Rc<Shelves>,
    census: Arc<Census>,
    admission: Admission,
) {
    let Admission { wanted, answer, came, written } = admission;
    let Some(live) = current.live() else {
        return drop(answer.send(Err(Denied::Service("there is no session".into()))));
    };
    let attempt = Guid::new(&*live.randomness);
    let _mark = census.mark(attempt);
    let node = OperationNode { id: wanted.operation.id, record: Record::new(&wanted, attempt), census };
    let admitted = node.admit(&live, &shelves, &wanted).await;
    // Let go of the session while the upstream works: a session that is in use cannot be closed.
    drop(live);
    match admitted {
        Ok(version) => {
            let came = match answer.send(Ok(())) {
                Ok(()) => came.await.ok(),
                // The caller went away meanwhile: nothing was sent.
                Err(_) => Some(Came::Nothing),
            };
            match came {
                Some(came) => node.settle(&current, Some(version), came.into()).await,
                None => {
                    node.census.leave(attempt, node.id);
                    warn!(reference = node.id.reference(), token = %wanted.token, "once.unknown");
                }
            }
        }
        Err(Stop::Refused(why)) => drop(answer.send(Err(why))),
        Err(Stop::Unsettled(why)) => {
            drop(answer.send(Err(why)));
            node.settle(&current, None, Came::Nothing.into()).await;
        }
    }
    // Fails when the caller has stopped waiting for it.
    written.send(()).ok();
}

/// The node of one attempt at one operation.
struct OperationNode {
    id: OperationId,
    record: Record,
    census: Arc<Census>,
}

impl OperationNode {
    /// Writes the record. Returns the version of the node when it is ours; only then may the request be sent.
    async fn admit<L: Link>(
        &self,
        live: &Live<L>,
        shelves: &Shelves,
        wanted: &Unwritten,
    ) -> Result<i32, Stop> {
        self.has_no_former(live, wanted).await?;
        let path = live.paths.operation(&self.id);
        let mut instead_of = None;
        for _ in 0..ROUNDS {
            let room = match instead_of {
                None => self.room(live, shelves, wanted).await?,
                Some(_) => Ok(()),
            };
            let mut unheard = false;
            if room.is_ok() {
                match self.write(live, shelves, wanted, instead_of).await {
                    Ok(version) => {
                        if instead_of.is_none() {
                            self.census.let_in(&self.id, &wanted.owner);
                        }
                        return Ok(version);
                    }
                    Err(Failed { fault: Fault::Over, .. }) => return Err(Stop::session_ended()),
                    Err(Failed { step: Some(step), fault: Fault::NoNode | Fault::BadVersion })
                        if step < wanted.nodes.len() =>
                    {
                        return Err(Denied::Lost.into());
                    }
                    Err(Failed { fault: Fault::NoNode, .. }) if instead_of.is_none() => {
                        make_shelf(live, &self.id).await?;
                        continue;
                    }
                    Err(Failed { fault: Fault::Ambiguous(_), .. }) => unheard = true,
                    // Another attempt was faster; look again.
                    Err(Failed { fault: Fault::NodeExists | Fault::NoNode | Fault::BadVersion, .. }) => {}
                    Err(Failed { fault, .. }) => return Err(Denied::Service(fault.to_string()).into()),
                }
            }
            let looked = look(live, &path).await;
            let found = if unheard { looked.map_err(Stop::unheard)? } else { looked? };
            instead_of = match found {
                None => {
                    room?;
                    None
                }
                Some((record, version)) if record.attempt == self.record.attempt => return Ok(version),
                Some((record, version)) if record.may_run() => Some(version),
                Some((record, _)) => return Err(self.told_of(&record).into()),
            };
        }
        Err(Denied::Service("the record of the operation came and went".into()).into())
    }

    /// Refuses an operation that has a record under the name that a former build gave it. Gateways of such a build may
    /// run beside us; see [`Census::may_know_former`] for how long this look is needed.
    async fn has_no_former<L: Link>(&self, live: &Live<L>, wanted: &Unwritten) -> Result<(), Stop> {
        let keep = Duration::from_secs(wanted.operation.keep);
        let may_know = || self.census.may_know_former(keep, live.clock.now());
        let Some(former) = wanted.operation.former.filter(|_| may_know()) else {
            return Ok(());
        };
        match look(live, &live.paths.operation(&former)).await? {
            Some((before, _)) if !before.may_run() => {
                let named = Self { id: former, record: self.record.clone(), census: self.census.clone() };
                Err(named.told_of(&before).into())
            }
            _ => Ok(()),
        }
    }

    /// Whether there is room: in the share of the owner, and among all operations.
    async fn room<L: Link>(
        &self,
        live: &Live<L>,
        shelves: &Shelves,
        wanted: &Unwritten,
    ) -> Result<Result<(), Denied>, Stop> {
        let share = self.census.has_room(&wanted.owner, wanted.memory);
        if share.is_err() {
            return Ok(share);
        }
        Ok(if shelves.have_room(live, &self.id).await? { Ok(()) } else { Err(Denied::Full) })
    }

    /// All or nothing: the lock is held, and the operation is new.
    async fn write<L: Link>(
        &self,
        live: &Live<L>,
        shelves: &Shelves,
        wanted: &Unwritten,
        instead_of: Option<i32>,
    ) -> Result<i32, Failed> {
        let (path, shelf, data) =
            (live.paths.operation(&self.id), live.paths.operation_shard(&self.id), self.record.bytes());
        let held = wanted.nodes.iter().map(|path| Step::Check { path, version: ANY });
        let mut steps: Vec<_> = held.collect();
        let version = match instead_of {
            None => {
                steps.push(Step::Create { path: &path, data: &data, kind: Kind::Persistent });
                0
            }
            Some(version) => {
                let writes = writes_to_admit(version);
                steps.push(Step::Check { path: &path, version });
                steps.extend((0..writes).map(|_| Step::Set { path: &path, data: &data }));
                version + i32::try_from(writes).expect("two at most")
            }
        };
        let written = live.link.commit(&steps);
        let seen = live.link.seen(&shelf);
        failpoint::pass("after_operation_sent");
        let (written, seen) = tokio::join!(written, seen);
        if let Ok(Some(seen)) = seen {
            shelves.saw(&self.id, seen.children);
        }
        written.map(|_| version)
    }

    /// The refusal of a repeat, by the record that was found.
    fn told_of(&self, before: &Record) -> Denied {
        match before.state {
            _ if before.fingerprint != self.record.fingerprint
                || !one_resource(&before.keys, &self.record.keys) =>
            {
                Denied::Mismatch
            }
            State::Admitted if self.census.runs(&before.attempt) => Denied::InProgress,
            State::Admitted => Denied::Unknown { reference: self.id.reference() },
            State::Done { status, .. } => Denied::Done { status },
            State::Aborted { .. } | State::Outlived => Denied::Done { status: None },
        }
    }

    /// Writes down the outcome of the attempt, through any session, for as long as it takes. `version`: of the node; if
    /// it is `None`, the node is read first. No session is held between two tries, because a session that is in use
    /// cannot be closed.
    async fn settle<L: Link>(&self, current: &Current<L>, mut version: Option<i32>, state: State) {
        let data = self.record.now(state).bytes();
        loop {
            let live = session(current).await;
            let path = live.paths.operation(&self.id);
            let expected = match version.take() {
                Some(version) => version,
                // The record may belong to a later attempt by now; so read whose it is.
                None => match look(&live, &path).await {
                    Ok(Some((record, version)))
                        if record.attempt == self.record.attempt && record.state == State::Admitted =>
                    {
                        version
                    }
                    Ok(_) => return,
                    // We can read all that we write, so this record is another's and stays.
                    Err(Stop::Refused(Denied::Foreign(_))) => return,
                    Err(Stop::Unsettled(_)) => {
                        drop(live);
                        sleep(AGAIN).await;
                        continue;
                    }
                    Err(Stop::Refused(why)) => {
                        drop(live);
                        warn!(%why, reference = self.id.reference(), "once.not_written");
                        sleep(PAUSE).await;
                        continue;
                    }
                },
            };
            let steps =
                [Step::Check { path: &path, version: expected }, Step::Set { path: &path, data: &data }];
            let written = live.link.commit(&steps).await;
            drop(live);
            match written {
                Ok(_) => return,
                Err(Failed { fault: Fault::NoNode | Fault::BadVersion, .. }) => {
                    return warn!(reference = self.id.reference(), "once.settled_by_somebody_else");
                }
                Err(Failed { fault: Fault::Ambiguous(_) | Fault::Over, .. }) => sleep(AGAIN).await,
                Err(failed) => {
                    warn!(%failed, reference = self.id.reference(), "once.not_written");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Any version: the step only checks that the node exists.
const ANY: i32 = -1;

/// The record at `path`, read after a `sync` with the leader.
async fn look<L: Link>(live: &Live<L>, path: &str) -> Result<Option<(Record, i32)>, Stop> {
    loop {
        let (synced, read) = (live.link.sync(path), live.link.data(path));
        return match tokio::join!(synced, read) {
            (Err(Fault::Over), _) | (_, Err(Fault::Over)) => Err(Stop::session_ended()),
            // This session was given up, and all its operations may fail like this for ever.
            (Err(Fault::Ambiguous(_)), _) | (_, Err(Fault::Ambiguous(_))) if live.over.is_cancelled() => {
                Err(Stop::session_ended())
            }
            (Err(Fault::Ambiguous(why)), _) | (_, Err(Fault::Ambiguous(why))) => {
                debug!(why, path, "looking again");
                sleep(AGAIN).await;
                continue;
            }
            (_, Err(Fault::NoNode)) => Ok(None),
            (Err(fault), _) | (_, Err(fault)) => Err(Denied::Service(fault.to_string()).into()),
            (Ok(()), Ok((data, seen))) => match Record::parse(&data) {
                Ok(record) => Ok(Some((record, seen.version))),
                Err(why) => Err(Denied::Foreign(why).into()),
            },
        };
    }
}

/// Makes the parents of an operation's node.
async fn make_shelf<L: Link>(live: &Live<L>, id: &OperationId) -> Result<(), Stop> {
    for path in [live.paths.operations(), live.paths.operation_shard(id)] {
        match live.link.create(&path, b"", Kind::Persistent).await {
            Ok(_) | Err(Fault::NodeExists | Fault::Ambiguous(_)) => {}
            Err(Fault::Over) => return Err(Stop::session_ended()),
            Err(fault) => return Err(Denied::Service(fault.to_string()).into()),
        }
    }
    Ok(())
}

async fn session<L>(current: &Current<L>) -> Rc<Live<L>> {
    loop {
        match current.live() {
            Some(live) => return live,
            None => current.changed().await,
        }
    }
}
