//! What a process knows of the operations in ZooKeeper: which ones run here, which ones ended here without a known
//! outcome, how many are unknown over all, and who owns them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_policies::{operation::OperationId, plan::OperationQuota};
use fencegate_process::{clock::BootInstant, randomness::Guid};

use super::quota::{QuotaCounter, QuotaOwner};
use crate::idempotency::error::AdmitOperationError;

/// Shared by all sessions of a process. Its counts come from their sweeps, see [`super::expiry`].
#[derive(Debug, Default)]
pub struct OperationIndex(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Attempts that run in this gateway.
    running: HashSet<Guid>,
    /// Attempts that ended in this gateway with an unknown outcome, which nobody here will write down.
    left: HashMap<Guid, OperationId>,
    /// What the last look at each shelf found, by the name of the shelf.
    shelves: BTreeMap<String, ShardInfo>,
    /// The shelf that was looked at last.
    last: String,
    /// How many operations each owner has, over all shelves.
    tally: QuotaCounter,
    /// Whether every shelf has been looked through since the start.
    complete: bool,
    /// Whether there are gateways whose plan names operations, or chooses keys, in another way than ours.
    strangers: bool,
    /// Since when there is no operation with a name of a former build, and no gateway that could make one.
    clean_since: Option<BootInstant>,
}

/// What was seen of the operations in one of the 256 nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct ShardInfo {
    /// Operations with an unknown outcome.
    pub(super) unknown: usize,
    pub(super) finished: HashMap<OperationId, FinishedOperation>,
    /// The owners of the operations, one for each operation.
    pub(super) owners: Vec<Arc<QuotaOwner>>,
    /// Whether some have the name that a former build gave them.
    pub(super) former: bool,
    looked_through: bool,
}

/// A finished operation. Its record does not change before it is forgotten, so it is not read again.
#[derive(Debug, Clone)]
pub(super) struct FinishedOperation {
    /// It is kept until then, in milliseconds of ZooKeeper's clock.
    pub(super) until: u64,
    /// `None`: a former build has named it.
    pub(super) owner: Option<Arc<QuotaOwner>>,
}

/// What is known of a shelf before somebody looks through it.
pub(super) struct ShardSnapshot {
    pub(super) finished: HashMap<OperationId, FinishedOperation>,
    left: HashSet<Guid>,
}

/// Keeps an attempt among those that run, until it is dropped.
pub(crate) struct RunningGuard {
    census: Arc<OperationIndex>,
    attempt: Guid,
}

impl OperationIndex {
    pub(super) fn mark_running(self: &Arc<Self>, attempt: Guid) -> RunningGuard {
        self.lock_state().running.insert(attempt);
        RunningGuard { census: self.clone(), attempt }
    }

    /// Does this attempt run here?
    pub(super) fn is_running(&self, attempt: &str) -> bool {
        Guid::parse(attempt).is_some_and(|attempt| self.lock_state().running.contains(&attempt))
    }

    /// The attempt ended with an unknown outcome. Its lock may stay with this gateway for other requests, so the lock
    /// alone would say that the operation still runs.
    pub(super) fn record_unknown(&self, attempt: Guid, id: OperationId) {
        self.lock_state().left.insert(attempt, id);
    }

    /// Whether this process knows for certain that the attempt has ended with an unknown outcome.
    pub(super) fn is_known_unknown(&self, attempt: &str) -> bool {
        Guid::parse(attempt).is_some_and(|attempt| self.lock_state().left.contains_key(&attempt))
    }

    /// The shelf whose turn it is, for whichever session asks. `shelves`: all of them, sorted.
    pub(super) fn next_shard<'s>(&self, shelves: &'s [String]) -> Option<&'s str> {
        let mut state = self.lock_state();
        let next = shelves.iter().find(|shelf| **shelf > state.last).or(shelves.first())?;
        state.last.clone_from(next);
        Some(next)
    }

    pub(super) fn snapshot(&self, shelf: &str) -> ShardSnapshot {
        let state = self.lock_state();
        let finished = state.shelves.get(shelf).map(|shelf| shelf.finished.clone()).unwrap_or_default();
        let here = |id: &OperationId| id.to_string()[..SHARD_DIGITS] == *shelf;
        let left = state.left.iter().filter(|(_, id)| here(id)).map(|(attempt, _)| *attempt).collect();
        ShardSnapshot { finished, left }
    }

    /// A shelf was looked through to its end. `known`: from before the look. `admitted`: the attempts whose records say
    /// that they were admitted and nothing more.
    pub(super) fn update_shard(
        &self,
        name: &str,
        known: &ShardSnapshot,
        admitted: &HashSet<Guid>,
        shelf: ShardInfo,
    ) {
        let mut state = self.lock_state();
        // An attempt in `left` whose record is no longer `admitted` has been resolved. Attempts that were left during
        // the look wait for the next one.
        state.left.retain(|attempt, _| !known.left.contains(attempt) || admitted.contains(attempt));
        if shelf.former {
            state.clean_since = None;
        }
        state.replace(name, Some(ShardInfo { looked_through: true, ..shelf }));
    }

    /// This gateway has admitted another operation.
    pub(super) fn record_admitted(&self, id: &OperationId, owner: &QuotaOwner) {
        let (mut state, owner) = (self.lock_state(), Arc::new(owner.clone()));
        state.tally.add(&owner);
        state.shelves.entry(id.to_string()[..SHARD_DIGITS].to_owned()).or_default().owners.push(owner);
    }

    /// # Errors
    /// The owner has used up its share.
    pub(super) fn check_quota(
        &self,
        owner: &QuotaOwner,
        memory: OperationQuota,
    ) -> Result<(), AdmitOperationError> {
        self.lock_state().tally.check_quota(owner, memory)
    }

    /// Says whether there are gateways with another plan. Gateways of a former build always have another one.
    pub(crate) fn set_incompatible_peers(&self, there: bool) {
        let mut state = self.lock_state();
        state.strangers = there;
        if there {
            state.clean_since = None;
        }
    }

    /// Whether an operation could still have the name that a former build gave it. A gateway of such a build may write
    /// after all shelves have been looked through. So the answer is yes until, for the length of `keep`, no operation
    /// had such a name and no gateway had another plan.
    pub(super) fn may_have_legacy_names(&self, keep: Duration, now: BootInstant) -> bool {
        self.lock_state().clean_since.is_none_or(|since| now.since(since) <= keep)
    }

    /// Forgets all other shelves: they are gone.
    pub(super) fn retain_shards(&self, shelves: &[String], now: BootInstant) {
        let mut state = self.lock_state();
        let gone = state.shelves.keys().filter(|name| shelves.binary_search(name).is_err());
        for name in gone.cloned().collect::<Vec<_>>() {
            state.replace(&name, None);
        }
        let looked = |name: &String| state.shelves.get(name).is_some_and(|shelf| shelf.looked_through);
        state.complete |= shelves.iter().all(looked);
        let clean = state.complete && !state.strangers && !state.shelves.values().any(|shelf| shelf.former);
        state.clean_since = if clean { state.clean_since.or(Some(now)) } else { None };
    }

    /// Operations with an unknown outcome on all shelves, as last seen. `None`: some shelves were not looked through
    /// yet.
    pub(super) fn unknown_count(&self) -> Option<usize> {
        let state = self.lock_state();
        state.complete.then(|| state.shelves.values().map(|shelf| shelf.unknown).sum())
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn replace(&mut self, name: &str, shelf: Option<ShardInfo>) {
        let before = self.shelves.remove(name).unwrap_or_default();
        before.owners.iter().for_each(|owner| self.tally.remove(owner));
        if let Some(shelf) = shelf {
            shelf.owners.iter().for_each(|owner| self.tally.add(owner));
            self.shelves.insert(name.to_owned(), shelf);
        }
    }
}

/// How many digits of an operation's name are the name of its shelf.
const SHARD_DIGITS: usize = 2;

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.census.lock_state().running.remove(&self.attempt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_process::randomness::SystemRandomness;

    const NOW: BootInstant = BootInstant::from_nanos(0);

    #[test]
    fn every_shelf_has_its_turn_whoever_asks() {
        let census = OperationIndex::default();
        let shelves = ["0a", "7f", "ff"].map(str::to_owned);
        let turns: Vec<_> = (0..4).map(|_| census.next_shard(&shelves).expect("some")).collect();
        assert_eq!(turns, ["0a", "7f", "ff", "0a"]);
        assert_eq!(census.next_shard(&shelves[2..]), Some("ff"), "a shelf that has gone is passed over");
        assert_eq!(census.next_shard(&[]), None);
    }

    #[test]
    fn what_ended_without_a_word_is_kept_until_it_is_decided() {
        let (census, id) = (OperationIndex::default(), OperationId::from_bytes([0xab; 32]));
        let [old, new] = [(), ()].map(|()| Guid::new(&SystemRandomness));
        census.record_unknown(old, id);
        let known = census.snapshot("ab");
        census.record_unknown(new, id);
        census.update_shard("ab", &known, &[old].into(), ShardInfo { unknown: 1, ..ShardInfo::default() });
        assert!(census.is_known_unknown(&old.to_string()) && census.is_known_unknown(&new.to_string()));
        let elsewhere = census.snapshot("cd");
        census.update_shard("cd", &elsewhere, &HashSet::new(), ShardInfo::default());
        assert!(census.is_known_unknown(&old.to_string()), "another shelf says nothing of it");
        let known = census.snapshot("ab");
        census.update_shard("ab", &known, &[new].into(), ShardInfo { unknown: 1, ..ShardInfo::default() });
        assert!(!census.is_known_unknown(&old.to_string()) && census.is_known_unknown(&new.to_string()));
        census.retain_shards(&["ab", "cd"].map(str::to_owned), NOW);
        assert_eq!(census.unknown_count(), Some(1));
        census.retain_shards(&["cd".to_owned()], NOW);
        assert_eq!(census.unknown_count(), Some(0));
    }

    #[test]
    fn how_many_are_unknown_is_not_told_before_every_shelf_has_been_looked_through() {
        let census = OperationIndex::default();
        let shelves = ["0a", "7f", "ff"].map(str::to_owned);
        census.retain_shards(&shelves, NOW);
        assert_eq!(census.unknown_count(), None);
        for (name, told) in [("0a", None), ("7f", None), ("ff", Some(3)), ("0a", Some(3))] {
            let shelf = ShardInfo { unknown: 1, ..ShardInfo::default() };
            census.update_shard(name, &census.snapshot(name), &HashSet::new(), shelf);
            census.retain_shards(&shelves, NOW);
            assert_eq!(census.unknown_count(), told, "{name}");
        }
    }

    #[test]
    fn what_was_let_in_counts_at_once_and_until_its_shelf_is_seen_without_it() {
        let (census, id) = (OperationIndex::default(), OperationId::from_bytes([0xab; 32]));
        let owner = QuotaOwner { route: "pay".into(), client: None };
        let memory = OperationQuota { route: 2, client: None };
        for _ in 0..2 {
            assert_eq!(census.check_quota(&owner, memory), Ok(()));
            census.record_admitted(&id, &owner);
        }
        assert_eq!(census.check_quota(&owner, memory), Err(AdmitOperationError::RouteFull));
        let shelf = |owners| ShardInfo { owners, ..ShardInfo::default() };
        let ours = Arc::new(owner.clone());
        census.update_shard(
            "ab",
            &census.snapshot("ab"),
            &HashSet::new(),
            shelf(vec![ours.clone(), ours.clone()]),
        );
        assert_eq!(
            census.check_quota(&owner, memory),
            Err(AdmitOperationError::RouteFull),
            "counted twice, or not at all"
        );
        census.update_shard("ab", &census.snapshot("ab"), &HashSet::new(), shelf(vec![ours]));
        assert_eq!(census.check_quota(&owner, memory), Ok(()));
        census.retain_shards(&[], NOW);
        census.record_admitted(&id, &owner);
        assert_eq!(census.check_quota(&owner, memory), Ok(()), "a shelf that has gone has nothing");
    }

    const KEEP: Duration = Duration::from_secs(60);

    /// A census of two shelves. Each call takes a minute and a second, which is longer than `keep`.
    #[derive(Default)]
    struct IndexFixture {
        census: OperationIndex,
        now: u64,
    }

    impl IndexFixture {
        fn may_have_legacy_names(&self) -> bool {
            self.census.may_have_legacy_names(KEEP, BootInstant::from_nanos(self.now))
        }

        /// The answers just after a look, and a minute and a second later.
        fn record_shard(&mut self, name: &str, former: bool) -> [bool; 2] {
            let shelf = ShardInfo { former, ..ShardInfo::default() };
            self.census.update_shard(name, &self.census.snapshot(name), &HashSet::new(), shelf);
            self.check_twice()
        }

        fn check_twice(&mut self) -> [bool; 2] {
            self.census.retain_shards(&["0a", "ff"].map(str::to_owned), BootInstant::from_nanos(self.now));
            let soon = self.may_have_legacy_names();
            self.now += 61_000_000_000;
            [soon, self.may_have_legacy_names()]
        }
    }

    #[test]
    fn former_names_are_looked_for_until_every_shelf_was_without_them_for_long_enough() {
        let mut shelves = IndexFixture::default();
        assert_eq!(shelves.check_twice(), [true, true]);
        assert_eq!(shelves.record_shard("0a", true), [true, true], "one was not looked through");
        assert_eq!(shelves.record_shard("ff", false), [true, true], "one has some");
        assert_eq!(shelves.record_shard("0a", false), [true, false], "somebody may write there meanwhile");
        assert_eq!(shelves.check_twice(), [false, false]);
        let id = OperationId::from_bytes([0xff; 32]);
        shelves.census.record_admitted(&id, &QuotaOwner { route: "pay".into(), client: None });
        assert_eq!(shelves.check_twice(), [false, false], "what is made now has no former name");
        assert_eq!(shelves.record_shard("ff", true), [true, true], "somebody of a former build is at work");
        assert_eq!(shelves.record_shard("ff", false), [true, false]);
    }

    #[test]
    fn former_names_are_looked_for_while_a_gateway_of_another_plan_is_there_and_for_long_enough_after() {
        let mut shelves = IndexFixture::default();
        for name in ["0a", "ff"] {
            shelves.record_shard(name, false);
        }
        assert!(!shelves.may_have_legacy_names());
        shelves.census.set_incompatible_peers(true);
        assert!(shelves.may_have_legacy_names(), "at once");
        assert_eq!(shelves.check_twice(), [true, true]);
        shelves.census.set_incompatible_peers(false);
        assert_eq!(shelves.check_twice(), [true, false]);
    }
}
