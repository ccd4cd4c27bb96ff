//! Evicts keys that were not used for long. Their tokens raise the floor.

use fencegate_process::clock::BootInstant;

use super::decide::AdmissionTable;
use crate::store::StoreMutation;

/// The result of one step of an eviction pass.
#[derive(Debug)]
pub struct IdleKeyEvictionStep {
    /// The changes of one transaction.
    pub changes: Vec<StoreMutation>,
    /// Whether there may be more to evict.
    pub more: bool,
}

/// One eviction pass, in steps.
#[derive(Debug)]
pub struct IdleKeyEvictionPass {
    idle_since: BootInstant,
    most: usize,
    /// The number of keys still to be checked. It is needed because keys that stay go back to the end of the queue.
    looks: usize,
}

impl AdmissionTable {
    /// Begins a pass that evicts keys not used since `idle_since`. While there are more than `most` keys, it also
    /// evicts others, the least recently used first. A key is checked twice at most, because it may have been used
    /// since it was queued.
    pub fn begin_eviction_pass(&self, idle_since: BootInstant, most: usize) -> IdleKeyEvictionPass {
        IdleKeyEvictionPass { idle_since, most, looks: 2 * self.unused.len() }
    }

    /// The next step of the pass, which checks at most `at_once` keys. The same transaction raises the floor to the
    /// tokens of the evicted keys.
    pub fn evict_step(
        &mut self,
        round: &mut IdleKeyEvictionPass,
        at_once: usize,
        now: BootInstant,
    ) -> IdleKeyEvictionStep {
        let IdleKeyEvictionPass { idle_since, most, .. } = *round;
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
            // A key that was used lately stays. If there are too many keys, only a key that was used since it
            // was queued does.
            let spared = state.used > idle_since && !(too_many && state.used <= seen);
            if spared || state.inherited || !state.prune_and_check_idle(now) {
                self.unused.push_back((state.used.max(seen), key));
                continue;
            }
            let floor = state.epochs().highest();
            self.at_work -= usize::from(state.at_work);
            self.keys.remove(&key);
            self.floor = self.floor.max(floor);
            changes.push(StoreMutation::Forget { key });
        }
        if !changes.is_empty() {
            changes.push(StoreMutation::Floor(self.floor));
        }
        round.looks -= looked;
        let more = looked == at_once && round.looks > 0;
        if !more {
            self.shrink_memory();
        }
        IdleKeyEvictionStep { changes, more }
    }

    /// Frees memory that a larger number of keys needed before.
    fn shrink_memory(&mut self) {
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

/// The number of keys for which capacity is always kept.
const SMALL: usize = 4096;
