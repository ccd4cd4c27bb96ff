//! Forgets keys that were not used for long. Their tokens raise the floor.

use fencegate_process::clock::BootInstant;

use super::decide::AdmissionTable;
use crate::store::Change;

/// The result of one step.
#[derive(Debug)]
pub struct EvictionStep {
    /// The changes of one transaction.
    pub changes: Vec<Change>,
    /// Whether there may be more to forget.
    pub more: bool,
}

/// One round of forgetting, in steps.
#[derive(Debug)]
pub struct EvictionPass {
    idle_since: BootInstant,
    most: usize,
    /// How many keys are still to be looked at. A count is needed because keys that stay go back to the end of the
    /// line.
    looks: usize,
}

impl AdmissionTable {
    /// Begins a round that forgets keys not used since `idle_since`. While there are more than `most` keys, it also
    /// forgets others, the longest unused first. A key is looked at twice at most, because it may have been used since
    /// it came into the line.
    pub fn eviction_pass(&self, idle_since: BootInstant, most: usize) -> EvictionPass {
        EvictionPass { idle_since, most, looks: 2 * self.unused.len() }
    }

    /// The next step of the round, which looks at `at_once` keys at most. The same transaction raises the floor to the
    /// tokens of the forgotten keys.
    pub fn evict(&mut self, round: &mut EvictionPass, at_once: usize, now: BootInstant) -> EvictionStep {
        let EvictionPass { idle_since, most, .. } = *round;
        let mut changes = Vec::new();
        let mut looked = 0;
        while looked < at_once.min(round.looks)
            && let Some((seen, _)) = self.unused.front()
            && (*seen <= idle_since || self.keys.len() > most)
        {
            let Some((seen, key)) = self.unused.pop_front() else { break };
            looked += 1;
            let too_many = self.keys.len() > most;
            let Some(state) = self.keys.get_mut(&key) else { continue };
            // A key that was used since the last look stays behind others.
            let spared = state.used > idle_since && !(too_many && state.used <= seen);
            if spared || state.inherited || !state.prune_and_check_idle(now) {
                self.unused.push_back((state.used.max(seen), key));
                continue;
            }
            let floor = state.epochs().highest();
            self.at_work -= usize::from(state.at_work);
            self.keys.remove(&key);
            self.floor = self.floor.max(floor);
            changes.push(Change::Forget { key });
        }
        if !changes.is_empty() {
            changes.push(Change::Floor(self.floor));
        }
        round.looks -= looked;
        let more = looked == at_once && round.looks > 0;
        if !more {
            self.shrink();
        }
        EvictionStep { changes, more }
    }

    /// Frees memory that a larger number of keys needed before.
    fn shrink(&mut self) {
        let most = self.keys.len().max(SMALL) * 4;
        if self.keys.capacity() > most {
            self.keys.shrink_to(most / 2);
            self.unused.shrink_to(most / 2);
        }
        if self.resting.capacity() > SMALL.max(self.resting.len()) * 4 {
            self.resting.shrink_to(SMALL);
        }
    }
}

/// Keys for which room is always kept.
const SMALL: usize = 4096;
