//! Keeps the store's list of keys at work, so that only those keys have to wait after an unclean stop.
//!
//! A key enters the list before a byte is sent, and leaves it some time after the last dispatch has ended. So a key in
//! use costs no further write, and the list never lacks a key at work.

use std::time::Duration;

use fencegate_policies::key::ResourceKey;
use fencegate_process::clock::BootInstant;

use super::{
    claim::{DispatchId, OpenDispatch},
    decide::AdmissionTable,
    key_state::InDoubtDispatch,
    quarantine::{QuarantineReason, QuarantineScope, QuarantineStatus, RecoveryQuarantine},
};
use crate::store::{InDoubtExecutionRecord, RecoveredActiveKeys, RecoveredState, StoreMutation};

impl AdmissionTable {
    /// Takes over the keys that an earlier process may have had at work. After a clean stop the store also records
    /// the remaining doubts.
    pub(super) fn take_over_active_keys(
        &mut self,
        recovered: &RecoveredState,
        now: BootInstant,
        max_execution: Duration,
    ) {
        let until = recovered.quarantine_length(max_execution).map(|left| now + left);
        let (every_key, keys): (_, &[ResourceKey]) = match &recovered.at_work {
            RecoveredActiveKeys::NewStore => (Some(QuarantineReason::NewStore), &[]),
            RecoveredActiveKeys::Restored => (Some(QuarantineReason::Restored), &[]),
            RecoveredActiveKeys::NotListed => (Some(QuarantineReason::OlderBuild), &[]),
            RecoveredActiveKeys::Keys(keys) => (None, keys),
        };
        self.listed = every_key.is_none();
        for key in keys {
            self.key_state(key, now).inherited = until.is_some();
            // The key is in the store's list already.
            self.mark_active(std::slice::from_ref(key));
            self.enqueue_idle_key(key, now);
        }
        let closes = every_key.is_some() || !keys.is_empty();
        self.quarantine = until.filter(|_| closes).map(|until| RecoveryQuarantine {
            until,
            unseen: None,
            every_key,
            keys: keys.to_vec(),
        });
    }

    /// Takes over a doubt of the previous process.
    pub(super) fn inherit_doubt(&mut self, left: &InDoubtExecutionRecord, now: BootInstant) {
        let id = self.next_id();
        let InDoubtExecutionRecord { keys, token, mode, remaining, place } = left;
        let until = now + *remaining;
        for key in keys {
            self.key_state(key, now).add_doubt(InDoubtDispatch {
                id,
                token: *token,
                mode: *mode,
                until,
                left: None,
            });
        }
        let open = OpenDispatch {
            keys: keys.clone().into(),
            token: *token,
            mode: *mode,
            until: Some(until),
            place: place.clone(),
        };
        self.open.insert(id, open);
        self.doubts.insert((until, id));
    }

    /// The quarantine at `now`, if there is one.
    pub fn quarantine(&self, now: BootInstant) -> Option<QuarantineStatus> {
        let RecoveryQuarantine { every_key, keys, .. } = self.quarantine.as_ref()?;
        let scope = every_key.map_or(QuarantineScope::Keys(keys.len()), QuarantineScope::EveryKey);
        let until = self.quarantine.as_ref()?.ends_at(now);
        (now < until).then_some(QuarantineStatus { until, scope })
    }

    /// The end of the quarantine of these keys, if one of them is in quarantine.
    pub fn quarantined_until(&self, keys: &[ResourceKey], now: BootInstant) -> Option<BootInstant> {
        let QuarantineStatus { until, scope } = self.quarantine(now)?;
        let inherited = |key| self.keys.get(key).is_some_and(|state| state.inherited);
        let closed = matches!(scope, QuarantineScope::EveryKey(_)) || keys.iter().any(inherited);
        closed.then_some(until)
    }

    /// Marks the keys as at work. Returns the changes that have to be in the store before a dispatch is sent on
    /// these keys.
    pub(super) fn mark_active(&mut self, keys: &[ResourceKey]) -> Vec<StoreMutation> {
        let mut changes = Vec::new();
        for key in keys {
            if let Some(state) = self.keys.get_mut(key)
                && !std::mem::replace(&mut state.at_work, true)
            {
                self.at_work += 1;
                changes.push(StoreMutation::AtWork { key: key.clone() });
            }
        }
        changes
    }

    /// The number of keys in the store's list, which would have to wait after an unclean stop.
    pub fn active_key_count(&self) -> usize {
        self.at_work
    }

    /// Queues a key that is no longer at work for its removal from the store's list.
    pub(super) fn enqueue_idle_key(&mut self, key: &ResourceKey, now: BootInstant) {
        let Some(state) = self.keys.get_mut(key) else { return };
        if state.at_work && !state.resting && !state.inherited && state.prune_and_check_idle(now) {
            state.resting = true;
            self.resting.push_back((now, key.clone()));
        }
    }

    /// Removes keys that were idle for `linger` from the store's list. Called periodically; returns at most
    /// `most` changes.
    pub fn delist_idle_keys(
        &mut self,
        linger: Duration,
        most: usize,
        now: BootInstant,
    ) -> Vec<StoreMutation> {
        self.end_expired_doubts(now);
        let mut changes = self.end_expired_quarantine(now);
        while changes.len() < most
            && let Some((since, _)) = self.resting.front()
            && *since + linger <= now
        {
            let Some((_, key)) = self.resting.pop_front() else { break };
            let Some(state) = self.keys.get_mut(&key) else { continue };
            state.resting = false;
            // A key that is at work again is skipped here. It is queued again when its dispatch has ended.
            if !state.at_work || state.inherited || !state.prune_and_check_idle(now) {
                continue;
            }
            if state.used + linger > now {
                state.resting = true;
                self.resting.push_back((state.used, key));
            } else {
                state.at_work = false;
                self.at_work -= 1;
                changes.push(StoreMutation::AtRest { key });
            }
        }
        changes
    }

    fn end_expired_doubts(&mut self, now: BootInstant) {
        while let Some((until, id)) = self.doubts.first().copied()
            && until <= now
        {
            self.doubts.pop_first();
            self.remove_ended_dispatch(id, now);
        }
    }

    pub(super) fn remove_ended_dispatch(&mut self, id: DispatchId, now: BootInstant) {
        let Some(open) = self.open.remove(&id) else { return };
        for key in open.keys.iter() {
            self.enqueue_idle_key(key, now);
        }
    }

    fn end_expired_quarantine(&mut self, now: BootInstant) -> Vec<StoreMutation> {
        if self.quarantine(now).is_none()
            && let Some(closed) = self.quarantine.take()
        {
            for key in &closed.keys {
                if let Some(state) = self.keys.get_mut(key) {
                    state.inherited = false;
                }
                self.enqueue_idle_key(key, now);
            }
        }
        if self.listed || self.quarantine.is_some() {
            return Vec::new();
        }
        self.mark_active_keys_listed()
    }

    /// The change that marks the store's list as complete.
    fn mark_active_keys_listed(&mut self) -> Vec<StoreMutation> {
        self.listed = true;
        let open: Vec<ResourceKey> = self.open.values().flat_map(|open| open.keys.to_vec()).collect();
        let mut changes = self.mark_active(&open);
        changes.push(StoreMutation::AtWorkListed);
        changes
    }
}
