//! Hands a key over where nobody compares tokens: after a holder that left without a word the next one waits until what
//! was sent before is over.
//!
//! The parent of the key keeps a record, see [`super::grant_record`]. Whoever is granted the key reads it once, *after* the
//! list that says so and *before* it writes to it for the first time: earlier it may be a record that somebody was about to
//! write, later it may be our own. Then it says `held` itself, in one transaction with a check that its lock node is there,
//! and only then anything may be sent. `clean` is said by nobody but a holder for whom all before was over, of which all is
//! known to be over as well, and in the transaction that removes its node.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use fencegate_process::{clock::Boot, failpoint, said::Brief, shown};
use tokio::time::sleep;
use tracing::{info, warn};

use super::{
    candidate::{Candidate, PAUSE, refused},
    grant::{Caller, Stop},
    grant_record::{GrantRecord, Parting},
    layout::Rank,
};
use crate::{
    delay_metrics::DelayEnd,
    not_granted::NotGranted,
    session::{
        link::{Failed, Fault, Link, Step},
        live::Live,
    },
};

/// What one attempt has to do with the records of its keys.
#[derive(Debug)]
pub(super) struct Delayed {
    /// How long what we send may go on after us; `None` where we send nothing.
    delay: Option<Duration>,
    /// What was sent before us is over, and our lock nodes hold.
    took_over: Cell<bool>,
    /// Nothing of what was sent under our nodes can be at work.
    known: Cell<bool>,
    /// The lock nodes that hold, in the order of the places.
    nodes: RefCell<Vec<String>>,
}

/// A parent that keeps a record is replaced by nobody but a holder who leaves it clean and alone. Where that never happens,
/// it is full here: short of the number that the server would give again and again.
pub(super) const LAST_RECORDED: u32 = (1 << 31) - (1 << 20);

/// A lock node that holds: where, and its name.
pub(super) struct FirstNode<'a, L> {
    pub(super) candidate: &'a Candidate<L>,
    pub(super) name: &'a str,
}

/// One record, as it was when we were granted its key.
struct Found {
    record: GrantRecord,
    /// Of the parent: nobody has written to it since.
    version: i32,
}

impl Delayed {
    pub(super) fn by(delay: Duration) -> Self {
        Self::new(Some(delay))
    }

    pub(super) fn sending_nothing() -> Self {
        Self::new(None)
    }

    fn new(delay: Option<Duration>) -> Self {
        let (took_over, known) = (Cell::new(false), Cell::new(true));
        Self { delay, took_over, known, nodes: RefCell::default() }
    }

    /// Takes the keys over from whoever held them last. Once it has begun to wait it does not end because nobody asks for
    /// the keys any more: where a delay is longer than every wait, nobody would ever have them.
    pub(super) async fn take_over<L: Link>(
        &self,
        held: &[FirstNode<'_, L>],
        epoch: u64,
        caller: &mut impl Caller,
    ) -> Result<(), Stop> {
        let live = &held.first().expect("at least one key").candidate.live;
        let mut found = Vec::with_capacity(held.len());
        for one in held {
            found.push(read(one).await?);
        }
        failpoint::pass("before_grant_record");
        let owed = found.iter().filter_map(|found| found.record.owes()).max();
        // Also of those before us: should we go before we have waited, whoever is next sees only what we say.
        let delay = self.delay.max(owed).unwrap_or_default();
        if self.delay.is_some() {
            write(held, &found, &GrantRecord::held(epoch, delay)).await?;
        }
        self.nodes.replace(held.iter().map(|one| one.name.to_owned()).collect());
        if owed.is_some() {
            sit_out(live, live.clock.now() + delay, caller).await?;
            for FirstNode { candidate, name } in held {
                if candidate.line.rank(&candidate.list().await?, name) != Rank::First {
                    return Err(NotGranted::Lost.into());
                }
            }
        }
        self.took_over.set(true);
        Ok(())
    }

    /// From here on something may be sent that nobody knows the end of.
    pub(super) fn in_use(&self) {
        self.known.set(false);
    }

    /// Whatever was sent is over.
    pub(super) fn all_known(&self) {
        self.known.set(true);
    }

    /// Our nodes hold, and whoever is next need not wait.
    pub(super) fn leaves_clean(&self) -> bool {
        self.took_over.get() && self.known.get()
    }

    /// The names of the nodes that hold, in the order of the places.
    pub(super) fn nodes(&self) -> Vec<String> {
        self.nodes.borrow().clone()
    }

    /// Nothing of ours is in the record any more.
    pub(super) fn left(&self) {
        self.took_over.set(false);
    }
}

/// The record of a key whose node of ours is the first.
async fn read<L: Link>(held: &FirstNode<'_, L>) -> Result<Found, NotGranted> {
    let Candidate { live, parent, .. } = held.candidate;
    loop {
        let (data, seen) = match live.link.data(parent).await {
            Ok(read) => read,
            Err(Fault::NoNode) => return Err(NotGranted::Lost),
            Err(Fault::Ambiguous(_)) => {
                held.candidate.again().await?;
                continue;
            }
            Err(fault) => return Err(refused(fault)),
        };
        return match GrantRecord::parse(&data) {
            Ok(Some(record)) => Ok(Found { record, version: seen.version }),
            // Made by somebody who keeps no record, and it would go with its last child. It goes with us, if we are that.
            Ok(None) => Err(NotGranted::Lost),
            Err(why) => {
                let path = shown::path(&live.paths.locks(), parent);
                Err(NotGranted::Service(format!("{path}: {why}")))
            }
        };
    }
}

/// Says in all parents that the keys are held: all or none, and only while our nodes are there.
async fn write<L: Link>(
    held: &[FirstNode<'_, L>],
    found: &[Found],
    record: &GrantRecord,
) -> Result<(), NotGranted> {
    let (data, first) = (record.bytes(), held.first().expect("at least one key").candidate);
    let own: Vec<_> = held.iter().map(|one| one.candidate.path(one.name)).collect();
    let places = held.iter().zip(found).zip(&own);
    let steps: Vec<_> = places
        .flat_map(|((one, found), own)| {
            let path = &*one.candidate.parent;
            [
                Step::Check { path: own, version: -1 },
                Step::Check { path, version: found.version },
                Step::Set { path, data: &data },
            ]
        })
        .collect();
    loop {
        match first.live.link.commit(&steps).await {
            Ok(_) => return Ok(()),
            Err(Failed { fault: Fault::Ambiguous(_), .. }) => {
                // Whether it was done, and nothing else: what the last holder left was read before.
                if is_written(first, record).await? {
                    return Ok(());
                }
            }
            // Somebody has taken a node of ours, and may hold.
            Err(Failed { fault: Fault::NoNode | Fault::BadVersion, .. }) => return Err(NotGranted::Lost),
            Err(Failed { fault, .. }) => return Err(refused(fault)),
        }
    }
}

/// The answer was lost: is the record ours? If it is not, it will not be, as of a create.
async fn is_written<L: Link>(first: &Candidate<L>, record: &GrantRecord) -> Result<bool, NotGranted> {
    loop {
        first.again().await?;
        let (synced, data) = (first.live.link.sync(&first.parent), first.live.link.data(&first.parent));
        match tokio::join!(synced, data) {
            (Err(Fault::Ambiguous(_)), _) | (_, Err(Fault::Ambiguous(_))) => {}
            (Ok(()), Ok((data, _))) => return Ok(data == record.bytes()),
            (_, Err(Fault::NoNode)) => return Err(NotGranted::Lost),
            (Err(fault), _) | (_, Err(fault)) => return Err(refused(fault)),
        }
    }
}

/// By our own clock, from our own grant: nothing that was sent before can be later than that.
async fn sit_out<L: Link>(live: &Live<L>, until: Boot, caller: &mut impl Caller) -> Result<(), NotGranted> {
    let rest = until.since(live.clock.now());
    info!(rest = %Brief(rest), "the last holder left without a word: its delay is sat out");
    caller.rests(until);
    let sitting = live.metrics.delays.begins(rest);
    let mut end = DelayEnd::CutShort;
    while !live.over.is_cancelled() && !live.registry.is_closing() {
        let rest = until.since(live.clock.now());
        if rest.is_zero() {
            end = DelayEnd::SatOut;
            break;
        }
        tokio::select! {
            () = sleep(rest) => {}
            () = live.over.cancelled() => {}
            () = live.registry.closes() => {}
        }
    }
    drop(sitting);
    live.metrics.delays.ended(end);
    match end {
        DelayEnd::SatOut => Ok(()),
        DelayEnd::CutShort => Err(NotGranted::Lost),
    }
}

/// Removes a node of ours and says that all is over, or takes the parent along where nobody else is below it: a key whose
/// parent is not there was never held, or left in order. Returns when the node is known to be gone, or its session is over.
///
/// One transaction, which finds our node or does nothing: without it somebody else may hold. An answer that was lost is
/// therefore asked for again, and a parent that others have made since is not touched.
pub(super) async fn leave<L: Link>(candidate: &Candidate<L>, name: &str) {
    let Candidate { live, parent, .. } = candidate;
    let (path, clean) = (candidate.path(name), GrantRecord::clean().bytes());
    loop {
        let last = candidate.is_alone();
        let after = if last {
            Step::Delete { path: parent, version: None }
        } else {
            Step::Set { path: parent, data: &clean }
        };
        let steps = [Step::Delete { path: &path, version: None }, after];
        failpoint::pass("before_leaving_clean");
        match live.link.commit(&steps).await {
            Ok(_) => {
                if last {
                    live.registry.parents.is_gone(parent);
                }
                return;
            }
            Err(Failed { fault: Fault::Over, .. } | Failed { step: Some(0), fault: Fault::NoNode }) => return,
            Err(Failed { fault: Fault::Ambiguous(_), .. }) => match candidate.again().await {
                Ok(()) => {}
                Err(_over) => return,
            },
            // Somebody has come since.
            Err(Failed { step: Some(1), .. }) if last => candidate.others_came(),
            Err(Failed { fault, .. }) => {
                warn!(%fault, path = shown::path(&live.paths.locks(), &path), "lock node not removed yet");
                sleep(PAUSE).await;
            }
        }
    }
}

/// What the record says for whoever looks; `None` where there is none.
pub async fn look<L: Link>(live: &Live<L>, parent: &str) -> Result<Option<GrantRecord>, Fault> {
    match live.link.data(parent).await {
        Ok((data, _)) => Ok(GrantRecord::parse(&data).ok().flatten()),
        Err(Fault::NoNode) => Ok(None),
        Err(fault) => Err(fault),
    }
}

impl GrantRecord {
    /// Whoever is next has to wait.
    pub fn is_held(&self) -> bool {
        self.state == Parting::Held
    }
}
