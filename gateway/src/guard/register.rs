//! Decides which dispatches may run: the marks of every key, what is in flight, and what is in doubt.
//!
//! No clock, no storage, no waiting. Whoever calls holds the lock over the register, brings the time, and commits the
//! changes that it asks for before anything is sent.

mod record;
#[cfg(test)]
mod tests;
mod view;

use std::{collections::HashMap, pin::Pin, sync::Arc, time::Duration};

use fencegate_policies::{key::ResourceKey, plan::Mode, token::Token};
use tokio::sync::futures::OwnedNotified;

use self::record::{Conflict, Record};
pub use self::{
    record::{Doubt, Mark, Running},
    view::Seen,
};
use super::{
    refused::Refused,
    store::{Change, Moment, Remembered},
};
use crate::session::clock::Boot;

/// A dispatch as its gateway presents it.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Sorted, without doubles, at least one.
    pub keys: Arc<[ResourceKey]>,
    pub token: Token,
    pub mode: Mode,
    /// By its ticket. Tokens of a later era than any before may be far larger.
    pub era: Option<u64>,
}

/// Everything that the guard knows of its keys.
#[derive(Debug)]
pub struct Register {
    keys: HashMap<ResourceKey, Record>,
    /// A token up to here is refused where its key has no record: its marks may have been forgotten.
    floor: u64,
    /// The largest epoch that was ever announced.
    highest: u64,
    /// The largest era of which a token was announced.
    era: u64,
    /// Until then a process before us may have something in flight that nobody wrote down.
    quarantine: Option<Boot>,
    next: u64,
}

/// Names a dispatch in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DispatchId(u64);

/// What became of a wish to run.
#[derive(Debug)]
pub enum Settled {
    /// Registered as in flight under this name.
    Running(DispatchId),
    /// Another one is in flight. Look again when told, or when a doubt may be over.
    Wait { told: Told, doubt: Option<Boot> },
}

/// Returns at the next change of a key.
pub type Told = Pin<Box<OwnedNotified>>;

/// How a dispatch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Answered in full, or not a byte of it left.
    Known,
    /// The upstream may be at work until then.
    InDoubt { until: Boot },
}

/// A token is not believed that is further above all others: forged, or of another installation.
pub const LARGEST_JUMP: u64 = 1 << 40;

impl Register {
    pub fn new(remembered: &Remembered, now: Boot, quarantine: Duration) -> Self {
        let mut register = Self {
            keys: HashMap::with_capacity(remembered.marks.len()),
            floor: remembered.floor,
            highest: remembered.floor,
            era: remembered.era,
            quarantine: None,
            next: 0,
        };
        for (key, marks) in &remembered.marks {
            register.highest = register.highest.max(marks.highest());
            register.keys.insert(key.clone(), Record::recovered(marks, remembered.floor, now));
        }
        match &remembered.clean_stop {
            None => register.quarantine = Some(now + quarantine),
            Some(stop) => {
                register.quarantine = stop.quarantine.map(|left| now + left);
                for mark in &stop.marks {
                    register.record(&mark.key, now).make_exact(mark.write, mark.read);
                }
                for doubt in &stop.doubts {
                    let id = register.name();
                    let doubt_of = |key| {
                        (
                            key,
                            Doubt { id, token: doubt.token, mode: doubt.mode, until: now + doubt.remaining },
                        )
                    };
                    for (key, doubt) in doubt.keys.iter().map(doubt_of) {
                        register.record(key, now).doubts.push(doubt);
                    }
                }
            }
        }
        register
    }

    /// Compares the claim with the marks of all its keys, and raises them: all or nothing. The changes have to be
    /// durable before [`Register::settle`] is asked.
    ///
    /// Every announced token moves its mark, also one that is never admitted, so a token presented twice is known as a
    /// duplicate before anything else is.
    ///
    /// # Errors
    /// No mark has moved.
    pub fn announce(&mut self, claim: &Claim, now: Boot) -> Result<Vec<Change>, Refused> {
        let token = claim.token;
        if !self.is_believed(claim) {
            return Err(Refused::Future { highest: self.highest });
        }
        for key in claim.keys.iter() {
            match self.keys.get(key) {
                Some(record) => record.compare(token, claim.mode)?,
                None => Record::new(self.floor, now).compare(token, claim.mode)?,
            }
        }
        Ok(self.raise(claim, now))
    }

    /// The changes of an announcement were handed in at this moment.
    pub fn handed_in(&mut self, changes: &[Change], moment: Moment) {
        for change in changes {
            if let Change::Mark { key, .. } = change
                && let Some(record) = self.keys.get_mut(key)
            {
                record.written = moment;
            }
        }
    }

    /// Nothing may be sent under the claim before everything up to this moment is durable.
    pub fn written(&self, claim: &Claim) -> Moment {
        let moments = claim.keys.iter().filter_map(|key| Some(self.keys.get(key)?.written));
        moments.max().unwrap_or_default()
    }

    /// Raises what the claim is above of, and nothing down. What is not believed or may have been forgotten raises
    /// nothing, also while one only looks on: those marks will be enforced one day.
    pub fn raise(&mut self, claim: &Claim, now: Boot) -> Vec<Change> {
        if !self.is_believed(claim) {
            return Vec::new();
        }
        self.highest = self.highest.max(claim.token.number());
        // Together with the first token of the era: an era that is known without one would let none in.
        let later = self.later_era(claim);
        self.era = later.unwrap_or(self.era);
        let mut changes: Vec<Change> = later.map(Change::Era).into_iter().collect();
        for key in claim.keys.iter() {
            if let Some(change) = self.record(key, now).raise(key, claim.token, claim.mode) {
                changes.push(change);
            }
        }
        changes
    }

    fn is_believed(&self, claim: &Claim) -> bool {
        self.later_era(claim).is_some() || claim.token.number() <= self.highest.saturating_add(LARGEST_JUMP)
    }

    fn later_era(&self, claim: &Claim) -> Option<u64> {
        claim.era.filter(|era| *era > self.era)
    }

    /// The second look, in one step with the registration: another tenure may have been announced while this one
    /// waited or its mark was written.
    ///
    /// # Errors
    /// The claim is not the newest of its keys any more, or nothing is let in yet.
    pub fn settle(&mut self, claim: &Claim, now: Boot) -> Result<Settled, Refused> {
        if let Some(until) = self.quarantine {
            if now < until {
                return Err(Refused::Quarantine { until });
            }
            self.quarantine = None;
        }
        for key in claim.keys.iter() {
            self.record(key, now).check(claim.token, claim.mode)?;
        }
        self.start(claim, now)
    }

    /// Registers the claim as in flight where nothing conflicts, whatever the marks say.
    pub fn start(&mut self, claim: &Claim, now: Boot) -> Result<Settled, Refused> {
        for key in claim.keys.iter() {
            let record = self.record(key, now);
            if let Some(Conflict { doubt }) = record.conflict(claim.mode, now) {
                // Made under the caller's lock, so that no change falls between looking and waiting.
                let told = Box::pin(record.told.clone().notified_owned());
                return Ok(Settled::Wait { told, doubt });
            }
        }
        Ok(Settled::Running(self.register(claim, now)))
    }

    /// Registers the claim as in flight beside whatever else is.
    pub fn register(&mut self, claim: &Claim, now: Boot) -> DispatchId {
        let id = self.name();
        for key in claim.keys.iter() {
            let running = Running { id, token: claim.token, mode: claim.mode, since: now };
            self.record(key, now).running.push(running);
        }
        id
    }

    /// The dispatch is over, and who waits for its keys is told.
    pub fn end(&mut self, claim: &Claim, id: DispatchId, ended: Ended, now: Boot) {
        for key in claim.keys.iter() {
            let record = self.record(key, now);
            record.running.retain(|running| running.id != id);
            if let Ended::InDoubt { until } = ended {
                record.doubts.push(Doubt { id, token: claim.token, mode: claim.mode, until });
            }
            record.told.notify_waiters();
        }
    }

    /// Nothing goes on of a dispatch that was in doubt: somebody asked, and knows. Whether there was such a doubt.
    pub fn resolve(&mut self, token: Token) -> bool {
        let mut found = false;
        for record in self.keys.values_mut() {
            let before = record.doubts.len();
            record.doubts.retain(|doubt| doubt.token != token);
            if record.doubts.len() < before {
                found = true;
                record.told.notify_waiters();
            }
        }
        found
    }

    /// Forgets keys that nobody has used since `idle_since`, and more, the longest unused first, while there are more
    /// than `most`. Their tokens raise the floor in the same transaction.
    pub fn evict(&mut self, idle_since: Boot, most: usize, now: Boot) -> Vec<Change> {
        let too_many = self.keys.len() > most;
        let unused = self.keys.iter_mut().filter_map(|(key, record)| {
            let asked = too_many || record.used <= idle_since;
            (asked && record.is_idle(now)).then(|| (record.used, key.clone()))
        });
        let mut unused: Vec<(Boot, ResourceKey)> = unused.collect();
        unused.sort_unstable();
        let mut changes = Vec::new();
        for (used, key) in unused {
            if used > idle_since && self.keys.len() <= most {
                break;
            }
            let record = self.keys.remove(&key).expect("found above");
            self.floor = self.floor.max(record.highest());
            changes.push(Change::Forget { key });
        }
        if !changes.is_empty() {
            changes.push(Change::Floor(self.floor));
        }
        changes
    }

    pub fn floor(&self) -> u64 {
        self.floor
    }

    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// Nothing is admitted before this instant.
    pub fn quarantine(&self) -> Option<Boot> {
        self.quarantine
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn name(&mut self) -> DispatchId {
        self.next += 1;
        DispatchId(self.next)
    }

    fn record(&mut self, key: &ResourceKey, now: Boot) -> &mut Record {
        let floor = self.floor;
        let record = self.keys.entry(key.clone()).or_insert_with(|| Record::new(floor, now));
        record.used = now;
        record
    }
}
