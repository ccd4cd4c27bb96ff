//! Which keys may be at work, so that after an unclean stop only they have to wait.
//!
//! Before a byte is sent, the store holds that something may be at work on its keys; that nothing is any more, it is told
//! later, and only of keys that have rested for a while: so a key in use costs no write. What the store holds is never
//! less than what is true.

use std::time::Duration;

use fencegate_policies::key::ResourceKey;
use fencegate_process::clock::Boot;

use super::{
    claim::{DispatchId, Open},
    decide::Register,
    key_state::Doubt,
    quarantine::{Quarantine, Quarantined, Scope, Why},
};
use crate::store::{AtWork, Change, OpenDoubt, Remembered};

impl Register {
    /// Keys that a process before us may have had at work. After a clean stop it has said what of that is left.
    pub(super) fn take_over(&mut self, remembered: &Remembered, now: Boot, max_execution: Duration) {
        let until = remembered.closed_for(max_execution).map(|left| now + left);
        let (every_key, keys): (_, &[ResourceKey]) = match &remembered.at_work {
            AtWork::NewStore => (Some(Why::NewStore), &[]),
            AtWork::Restored => (Some(Why::Restored), &[]),
            AtWork::NotListed => (Some(Why::OlderBuild), &[]),
            AtWork::Keys(keys) => (None, keys),
        };
        self.listed = every_key.is_none();
        for key in keys {
            self.state(key, now).inherited = until.is_some();
            // It stands in the store already.
            self.take_up(std::slice::from_ref(key));
            self.comes_to_rest(key, now);
        }
        let closes = every_key.is_some() || !keys.is_empty();
        self.quarantine =
            until.filter(|_| closes).map(|until| Quarantine { until, every_key, keys: keys.to_vec() });
    }

    /// A doubt of the process before us.
    pub(super) fn inherit(&mut self, left: &OpenDoubt, now: Boot) {
        let id = self.name();
        let OpenDoubt { keys, token, mode, remaining } = left;
        let until = now + *remaining;
        for key in keys {
            self.state(key, now).doubt(Doubt { id, token: *token, mode: *mode, until });
        }
        let open = Open { keys: keys.clone().into(), token: *token, mode: *mode, until: Some(until) };
        self.open.insert(id, open);
        self.doubts.insert((until, id));
    }

    /// What is closed now.
    pub fn quarantine(&self, now: Boot) -> Option<Quarantined> {
        let Quarantine { until, every_key, keys } = self.quarantine.as_ref()?;
        let scope = every_key.map_or(Scope::Keys(keys.len()), Scope::EveryKey);
        (now < *until).then_some(Quarantined { until: *until, scope })
    }

    /// Until when a process before us may have something at work on one of these keys.
    pub fn quarantine_of(&self, keys: &[ResourceKey], now: Boot) -> Option<Boot> {
        let Quarantined { until, scope } = self.quarantine(now)?;
        let inherited = |key| self.keys.get(key).is_some_and(|state| state.inherited);
        let closed = matches!(scope, Scope::EveryKey(_)) || keys.iter().any(inherited);
        closed.then_some(until)
    }

    /// What the store has to be told before anything is sent on these keys.
    pub(super) fn take_up(&mut self, keys: &[ResourceKey]) -> Vec<Change> {
        let mut changes = Vec::new();
        for key in keys {
            if let Some(state) = self.keys.get_mut(key)
                && !std::mem::replace(&mut state.at_work, true)
            {
                self.at_work += 1;
                changes.push(Change::AtWork { key: key.clone() });
            }
        }
        changes
    }

    /// Keys that the store holds to be at work: so many would have to wait after an unclean stop.
    pub fn at_work(&self) -> usize {
        self.at_work
    }

    /// Puts a key that nothing is at work on in the line of those that the store is told of.
    pub(super) fn comes_to_rest(&mut self, key: &ResourceKey, now: Boot) {
        let Some(state) = self.keys.get_mut(key) else { return };
        if state.at_work && !state.resting && !state.inherited && state.is_idle(now) {
            state.resting = true;
            self.resting.push_back((now, key.clone()));
        }
    }

    /// What the store can be told: of keys that have rested for `linger`, that nothing is at work on them. To be asked
    /// now and then; at most `most` changes at once.
    pub fn rest(&mut self, linger: Duration, most: usize, now: Boot) -> Vec<Change> {
        self.end_doubts(now);
        let mut changes = self.end_quarantine(now);
        while changes.len() < most
            && let Some((since, _)) = self.resting.front()
            && *since + linger <= now
        {
            let Some((_, key)) = self.resting.pop_front() else { break };
            let Some(state) = self.keys.get_mut(&key) else { continue };
            state.resting = false;
            // What is in flight or in doubt comes back here when it has ended.
            if !state.at_work || state.inherited || !state.is_idle(now) {
                continue;
            }
            if state.used + linger > now {
                state.resting = true;
                self.resting.push_back((state.used, key));
            } else {
                state.at_work = false;
                self.at_work -= 1;
                changes.push(Change::AtRest { key });
            }
        }
        changes
    }

    fn end_doubts(&mut self, now: Boot) {
        while let Some((until, id)) = self.doubts.first().copied()
            && until <= now
        {
            self.doubts.pop_first();
            self.ended(id, now);
        }
    }

    fn ended(&mut self, id: DispatchId, now: Boot) {
        let Some(open) = self.open.remove(&id) else { return };
        for key in open.keys.iter() {
            self.comes_to_rest(key, now);
        }
    }

    fn end_quarantine(&mut self, now: Boot) -> Vec<Change> {
        if self.quarantine(now).is_none()
            && let Some(closed) = self.quarantine.take()
        {
            for key in &closed.keys {
                if let Some(state) = self.keys.get_mut(key) {
                    state.inherited = false;
                }
                self.comes_to_rest(key, now);
            }
        }
        if self.listed || self.quarantine.is_some() {
            return Vec::new();
        }
        self.list()
    }

    /// From now on the store's list of keys at work leaves none out.
    fn list(&mut self) -> Vec<Change> {
        self.listed = true;
        let open: Vec<ResourceKey> = self.open.values().flat_map(|open| open.keys.to_vec()).collect();
        let mut changes = self.take_up(&open);
        changes.push(Change::AtWorkListed);
        changes
    }
}
