//! The state of one key: its two watermarks, and the dispatches that may be at work on it.
//!
//! A guard keeps this state of each key for an hour and longer. So the state of an idle key has to be small: a box
//! holds the part that only a key at work needs.

use std::{sync::Arc, time::Duration};

use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_process::clock::BootInstant;
use smallvec::SmallVec;
use tokio::sync::{Notify, futures::OwnedNotified};

use super::claim::{DispatchId, PresentedDispatch};
use crate::{
    error::DispatchRefusedError,
    store::{CommitSeq, DurableKeyWatermarks, KeyWatermarks, StoreMutation},
};

/// The newest token seen for one kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenWatermark {
    pub token: FencingToken,
    /// False after an unclean stop: only the epoch was durable, so no token of that epoch is admitted again.
    pub exact: bool,
}

/// A dispatch that was sent and has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningDispatch {
    pub id: DispatchId,
    pub token: FencingToken,
    pub mode: LockMode,
    pub since: BootInstant,
    /// For a callback: the dispatch of the same tenure that has called it, which may be over.
    pub caller: Option<FencingToken>,
}

/// A dispatch that was sent, and whose end was not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InDoubtDispatch {
    pub id: DispatchId,
    pub token: FencingToken,
    pub mode: LockMode,
    /// The instant from which the dispatch counts as over, unless `left` is set.
    pub until: BootInstant,
    /// The time for which the dispatch's endpoint still has to be seen running. While it is set, the clock alone
    /// does not end the doubt.
    pub left: Option<Duration>,
}

impl InDoubtDispatch {
    fn is_still_in_doubt(&self, now: BootInstant) -> bool {
        self.left.is_some() || now < self.until
    }

    /// The earliest instant at which the dispatch counts as over.
    pub(crate) fn ends_at(&self, now: BootInstant) -> BootInstant {
        self.left.map_or(self.until, |left| now + left)
    }
}

#[derive(Debug)]
pub(super) struct GuardKeyState {
    write: WriterWatermark,
    read: Option<Box<TokenWatermark>>,
    pub(super) used: BootInstant,
    /// The position in the commit queue of the key's newest change.
    pub(super) written: CommitSeq,
    work: Option<Box<ActiveDispatches>>,
    /// Whether the store lists the key as at work, or will list it before a dispatch is sent.
    pub(super) at_work: bool,
    /// Whether the key is queued for its removal from the store's list of keys at work.
    pub(super) resting: bool,
    /// Whether an earlier process may have had the key at work when it ended.
    pub(super) inherited: bool,
}

/// The watermark of writes, or a base in its place.
#[derive(Debug, Clone, Copy)]
enum WriterWatermark {
    /// No write was seen. `base` is the floor at the time when this state was created, because an earlier
    /// watermark up to that floor may have been forgotten.
    Unseen {
        base: u64,
    },
    Seen(TokenWatermark),
}

/// The dispatches in flight and in doubt, and the notifier of the requests that wait.
#[derive(Debug, Default)]
struct ActiveDispatches {
    running: SmallVec<[RunningDispatch; 1]>,
    doubts: Vec<InDoubtDispatch>,
    /// Notified at every change that a request may wait for.
    changed: Arc<Notify>,
}

/// Another dispatch blocks the claim.
pub(super) struct DispatchConflict {
    /// Set if only doubts block the claim: the instant at which the last of them is over.
    pub(super) doubt: Option<BootInstant>,
}

impl TokenWatermark {
    pub(super) fn exact(token: FencingToken) -> Self {
        Self { token, exact: true }
    }

    fn from_epoch(epoch: u64) -> Option<Self> {
        let token = FencingToken::new(epoch, u32::MAX, u32::MAX).ok()?;
        Some(Self { token, exact: false })
    }
}

/// The watermarks of writes and of reads, as the next process restores them. `whole`: the watermarks of the key
/// that a clean stop has stored, if the last stop was clean.
pub fn recover_watermarks(
    epochs: &DurableKeyWatermarks,
    whole: Option<&KeyWatermarks>,
) -> (Option<TokenWatermark>, Option<TokenWatermark>) {
    let mut record = GuardKeyState::from_epochs(epochs, 0, BootInstant::from_nanos(0));
    if let Some(whole) = whole {
        record.make_exact(whole.write, whole.read);
    }
    (record.write_watermark(), record.read_watermark())
}

impl GuardKeyState {
    pub(super) fn new(base: u64, now: BootInstant) -> Self {
        Self {
            write: WriterWatermark::Unseen { base },
            read: None,
            used: now,
            written: CommitSeq::default(),
            work: None,
            at_work: false,
            resting: false,
            inherited: false,
        }
    }

    pub(super) fn from_epochs(epochs: &DurableKeyWatermarks, base: u64, now: BootInstant) -> Self {
        let write = epochs
            .write
            .and_then(TokenWatermark::from_epoch)
            .map_or(WriterWatermark::Unseen { base }, WriterWatermark::Seen);
        let read = epochs.read.and_then(TokenWatermark::from_epoch).map(Box::new);
        Self { write, read, ..Self::new(base, now) }
    }

    /// Sets the whole tokens of the watermarks, which are known after a clean stop.
    pub(super) fn make_exact(&mut self, write: Option<FencingToken>, read: Option<FencingToken>) {
        self.write = write.map(TokenWatermark::exact).map_or(self.write, WriterWatermark::Seen);
        self.read = read.map(TokenWatermark::exact).map(Box::new).or(self.read.take());
    }

    pub(super) fn write_watermark(&self) -> Option<TokenWatermark> {
        match self.write {
            WriterWatermark::Unseen { .. } => None,
            WriterWatermark::Seen(watermark) => Some(watermark),
        }
    }

    pub(super) fn read_watermark(&self) -> Option<TokenWatermark> {
        self.read.as_deref().copied()
    }

    pub(super) fn epochs(&self) -> DurableKeyWatermarks {
        let epoch = |watermark: Option<TokenWatermark>| watermark.map(|watermark| watermark.token.number());
        DurableKeyWatermarks { write: epoch(self.write_watermark()), read: epoch(self.read_watermark()) }
    }

    /// The first check of a claim, before the claim raises the watermark.
    pub(super) fn compare_with_watermarks(
        &self,
        token: FencingToken,
        mode: LockMode,
    ) -> Result<(), DispatchRefusedError> {
        self.check_above_write_floor(token)?;
        if let Some(write) = self.write_watermark()
            && token <= write.token
        {
            let same = mode == LockMode::Exclusive && token.number() == write.token.number();
            return Err(match (same, write.exact) {
                // Readers of one tenure may come in any order, so their tokens are never duplicates.
                (false, _) => DispatchRefusedError::Stale { newest: write.token },
                (true, true) => DispatchRefusedError::Duplicate { newest: write.token },
                (true, false) => DispatchRefusedError::Recovered { epoch: write.token.number() },
            });
        }
        self.check_readers(token, mode)
    }

    /// Refuses a token up to the base. This state may have been created for a read after the watermark of a
    /// write up to the base was forgotten.
    fn check_above_write_floor(&self, token: FencingToken) -> Result<(), DispatchRefusedError> {
        match self.write {
            WriterWatermark::Unseen { base } if token.number() <= base => {
                Err(DispatchRefusedError::Floor { floor: base })
            }
            _ => Ok(()),
        }
    }

    fn check_readers(&self, token: FencingToken, mode: LockMode) -> Result<(), DispatchRefusedError> {
        match (mode, &self.read) {
            (LockMode::Exclusive, Some(read)) if token <= read.token => {
                Err(DispatchRefusedError::Stale { newest: read.token })
            }
            _ => Ok(()),
        }
    }

    /// Raises the watermark, and never lowers it. `Some` if the epoch is not in the store yet, so later dispatches of
    /// a tenure cost no write.
    pub(super) fn raise_watermark(
        &mut self,
        key: &ResourceKey,
        token: FencingToken,
        mode: LockMode,
    ) -> Option<StoreMutation> {
        // A watermark below the base would take the place of the base, and admit tokens up to the base.
        self.check_above_write_floor(token).ok()?;
        let before = match mode {
            LockMode::Exclusive => self.write_watermark(),
            LockMode::Shared => self.read_watermark(),
        };
        if before.is_some_and(|watermark| token <= watermark.token) {
            return None;
        }
        match mode {
            LockMode::Exclusive => self.write = WriterWatermark::Seen(TokenWatermark::exact(token)),
            LockMode::Shared => self.read = Some(Box::new(TokenWatermark::exact(token))),
        }
        if before.is_some_and(|before| before.token.number() == token.number()) {
            return None;
        }
        // Wakes the requests that wait with an older token, because they are stale now.
        self.notify();
        Some(StoreMutation::Mark { key: key.clone(), epochs: self.epochs() })
    }

    /// The second check of a claim, in the step that registers the dispatch. A write passes only if its token is
    /// still exactly the watermark.
    pub(super) fn check_still_newest(
        &self,
        token: FencingToken,
        mode: LockMode,
    ) -> Result<(), DispatchRefusedError> {
        match (mode, self.write_watermark()) {
            (LockMode::Exclusive, Some(write)) if write.token == token => self.check_readers(token, mode),
            (LockMode::Exclusive, write) => {
                Err(DispatchRefusedError::Stale { newest: write.map_or(token, |watermark| watermark.token) })
            }
            (LockMode::Shared, Some(write)) if token <= write.token => {
                Err(DispatchRefusedError::Stale { newest: write.token })
            }
            (LockMode::Shared, _) => self.check_above_write_floor(token),
        }
    }
}

impl GuardKeyState {
    pub(super) fn add_running(&mut self, running: RunningDispatch) {
        self.work.get_or_insert_default().running.push(running);
    }

    /// Ends the dispatch, or puts it in doubt, and wakes the requests that wait.
    pub(super) fn end_dispatch(&mut self, id: DispatchId, doubt: Option<InDoubtDispatch>) {
        let Some(work) = &mut self.work else { return };
        work.running.retain(|running| running.id != id);
        work.doubts.extend(doubt);
        self.notify();
        self.drop_idle_work();
    }

    pub(super) fn add_doubt(&mut self, doubt: InDoubtDispatch) {
        self.work.get_or_insert_default().doubts.push(doubt);
    }

    /// Sets how long the endpoint still has to be seen running before the doubt ends; at zero the doubt is over now.
    pub(super) fn set_required_liveness(&mut self, id: DispatchId, left: Duration) {
        let Some(work) = &mut self.work else { return };
        if left.is_zero() {
            work.doubts.retain(|doubt| doubt.id != id);
            self.notify();
            self.drop_idle_work();
            return;
        }
        work.doubts.iter_mut().filter(|doubt| doubt.id == id).for_each(|doubt| doubt.left = Some(left));
    }

    /// Moves the end of the doubt later by `by`, a time in which this process did not run.
    pub(super) fn postpone_doubt_end(&mut self, id: DispatchId, by: Duration) {
        let Some(work) = &mut self.work else { return };
        let doubts = work.doubts.iter_mut().filter(|doubt| doubt.id == id);
        doubts.for_each(|doubt| doubt.until = doubt.until + by);
    }

    /// Ends the doubts about this token, and returns them.
    pub(super) fn resolve_doubts_with_token(&mut self, token: FencingToken) -> Vec<DispatchId> {
        let Some(work) = &mut self.work else { return Vec::new() };
        let over = work.doubts.extract_if(.., |doubt| doubt.token == token).map(|doubt| doubt.id).collect();
        self.notify();
        self.drop_idle_work();
        over
    }

    pub(super) fn running(&self) -> &[RunningDispatch] {
        self.work.as_ref().map_or(&[], |work| &work.running)
    }

    pub(super) fn doubts(&self, now: BootInstant) -> impl Iterator<Item = &InDoubtDispatch> {
        self.work.iter().flat_map(|work| &work.doubts).filter(move |doubt| doubt.is_still_in_doubt(now))
    }

    /// The doubts, including ended ones that are not removed yet.
    pub(super) fn doubts_with_ended(&self) -> impl Iterator<Item = &InDoubtDispatch> {
        self.work.iter().flat_map(|work| &work.doubts)
    }

    /// Finds the dispatches that block the claim. Every dispatch in flight or in doubt does, unless both are
    /// shared. That includes dispatches of the claim's own tenure: a gateway sends them one after another, so an
    /// overlap would be a fault. Only a callback's callers do not block it, because they wait for it; a doubt
    /// about one of them does.
    pub(super) fn find_conflict(
        &self,
        claim: &PresentedDispatch,
        now: BootInstant,
    ) -> Option<DispatchConflict> {
        let both_share = |other: LockMode| claim.mode == LockMode::Shared && other == LockMode::Shared;
        let callers = self.callback_callers(claim);
        let beside = |running: &RunningDispatch| both_share(running.mode) || callers.contains(&running.id);
        let running = self.running().iter().any(|running| !beside(running));
        let doubt =
            self.doubts(now).filter(|doubt| !both_share(doubt.mode)).map(|doubt| doubt.ends_at(now)).max();
        match (running, doubt) {
            (false, None) => None,
            (false, Some(doubt)) => Some(DispatchConflict { doubt: Some(doubt) }),
            (true, _) => Some(DispatchConflict { doubt: None }),
        }
    }

    /// The dispatches in flight that the claim runs inside of: its caller, the caller of that, and so on.
    fn callback_callers(&self, claim: &PresentedDispatch) -> SmallVec<[DispatchId; 2]> {
        let mut callers = SmallVec::new();
        let mut next = claim.caller();
        while let Some(token) = next
            && let Some(caller) = self.running().iter().find(|running| running.token == token)
            && !callers.contains(&caller.id)
        {
            callers.push(caller.id);
            next = caller.caller;
        }
        callers
    }

    /// A future that resolves at the next change of the key.
    pub(super) fn subscribe(&mut self) -> OwnedNotified {
        self.work.get_or_insert_default().changed.clone().notified_owned()
    }

    fn notify(&self) {
        if let Some(work) = &self.work {
            work.changed.notify_waiters();
        }
    }

    /// Removes the doubts that are over. True if nothing is in flight or in doubt on the key any more.
    pub(super) fn prune_and_check_idle(&mut self, now: BootInstant) -> bool {
        if let Some(work) = &mut self.work {
            work.doubts.retain(|doubt| doubt.is_still_in_doubt(now));
        }
        self.drop_idle_work();
        self.work.is_none()
    }

    /// Frees the state that only a key at work needs. Waiting requests keep their own handle of the notifier.
    fn drop_idle_work(&mut self) {
        self.work.take_if(|work| work.running.is_empty() && work.doubts.is_empty());
    }
}
