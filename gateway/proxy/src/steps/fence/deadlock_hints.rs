//! Records which traces hold which keys, to recognise a request that waited in vain for its own caller.
//!
//! If a request of the same trace holds the key, that request may have called this one, without a ticket; then this
//! one waited for its own caller. Or a third party sent both, and the second one waited too long for its turn. The
//! request does not show which case it is. So no request is refused for this; the refusal after the wait only
//! mentions it.

use std::{
    collections::HashMap,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fencegate_policies::key::ResourceKey;

/// The traces that hold each key, for the whole gateway.
#[derive(Debug, Default)]
pub struct TraceKeyIndex([TraceShard; SHARDS]);

type TraceShard = Mutex<HashMap<ResourceKey, Vec<u128>>>;

/// Many shards, so that workers rarely wait for one lock.
const SHARDS: usize = 16;

/// Records that a trace holds these keys, until it is dropped.
pub struct TraceKeyEntryGuard {
    all: Arc<TraceKeyIndex>,
    keys: Rc<[ResourceKey]>,
    trace: u128,
}

impl TraceKeyIndex {
    pub fn insert(self: &Arc<Self>, keys: &Rc<[ResourceKey]>, trace: u128) -> TraceKeyEntryGuard {
        for key in keys.iter() {
            self.shard(key).entry(key.clone()).or_default().push(trace);
        }
        TraceKeyEntryGuard { all: self.clone(), keys: keys.clone(), trace }
    }

    /// True if a request of this trace holds one of the keys.
    pub fn holds_any(&self, keys: &[ResourceKey], trace: u128) -> bool {
        keys.iter().any(|key| self.shard(key).get(key).is_some_and(|traces| traces.contains(&trace)))
    }

    fn shard(&self, key: &ResourceKey) -> MutexGuard<'_, HashMap<ResourceKey, Vec<u128>>> {
        // No panic can leave the map half changed, so a poisoned lock is still good.
        self.0[usize::from(key.lock_shard()) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TraceKeyEntryGuard {
    fn drop(&mut self) {
        for key in self.keys.iter() {
            let mut shard = self.all.shard(key);
            let Some(traces) = shard.get_mut(key) else { continue };
            if let Some(at) = traces.iter().position(|trace| *trace == self.trace) {
                traces.swap_remove(at);
            }
            if traces.is_empty() {
                shard.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index has a trace under a key as long as one of the trace's requests holds the key.
    #[test]
    fn trace_holds_keys_of_its_requests() {
        let traces = Arc::<TraceKeyIndex>::default();
        let key = |name| ResourceKey::parse(name).expect("a key");
        let keys: Rc<[ResourceKey]> = [key("a"), key("b")].into();
        let one = traces.insert(&keys, 7);
        let again = traces.insert(&keys, 7);
        assert!(
            traces.holds_any(&[key("b")], 7)
                && !traces.holds_any(&[key("b")], 8)
                && !traces.holds_any(&[key("c")], 7)
        );
        drop(one);
        assert!(traces.holds_any(&[key("a")], 7));
        drop(again);
        assert!(!traces.holds_any(&keys, 7));
        assert!(traces.0.iter().all(|shard| shard.lock().expect("sound").is_empty()));
    }
}
