//! The operations in ZooKeeper, as far as this process has seen them: which ones run here, which ones ended here
//! without a known outcome, how many are unknown in total, and who owns them.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_policies::{operation::OperationId, plan::OperationQuota};
use fencegate_process::{clock::BootInstant, randomness::Guid};
use fencegate_zookeeper::session::{active_session::ActiveSession, client::ZkClient};

use super::quota::{OperationQuotaCounter, OperationQuotaOwner};
use crate::error::AdmitOperationError;

/// The index of a process, shared by all its sessions. Its counts come from the sweeps of these sessions, see
/// [`super::expiry`].
#[derive(Debug, Default)]
pub struct OperationIndex(Mutex<OperationIndexState>);

#[derive(Debug, Default)]
struct OperationIndexState {
    /// Attempts that run in this gateway.
    running: HashSet<Guid>,
    /// Attempts that ended in this gateway with an unknown outcome, which this gateway never records.
    left: HashMap<Guid, OperationId>,
    /// The result of the last scan of each shard, by the name of the shard.
    shelves: BTreeMap<String, OperationShard>,
    /// The shard that was scanned last.
    last: String,
    /// The number of operations of each owner, over all shards.
    tally: OperationQuotaCounter,
    /// Whether every shard has been scanned since the start.
    complete: bool,
    /// Whether there are peers with an incompatible plan, which names operations or chooses keys differently.
    strangers: bool,
    /// The time since when there is no operation with a name of a former build, and no gateway that could make one.
    clean_since: Option<BootInstant>,
}

/// The operations seen in one of the 256 shards.
#[derive(Debug, Clone, Default)]
pub(super) struct OperationShard {
    /// Operations with an unknown outcome.
    pub(super) unknown: usize,
    pub(super) finished: HashMap<OperationId, FinishedOperationEntry>,
    /// The owners of the operations, one for each operation.
    pub(super) owners: Vec<Arc<OperationQuotaOwner>>,
    /// Whether some operations have the name that a former build gave them.
    pub(super) former: bool,
    looked_through: bool,
}

/// A finished operation. Its record does not change before it is forgotten, so it is not read again.
#[derive(Debug, Clone)]
pub(super) struct FinishedOperationEntry {
    /// The record is kept until this time, in milliseconds of ZooKeeper's clock.
    pub(super) until: u64,
    /// The owner of the operation; `None` if a former build has named it.
    pub(super) owner: Option<Arc<OperationQuotaOwner>>,
}

/// The known state of a shard before a scan.
pub(super) struct OperationShardSnapshot {
    pub(super) finished: HashMap<OperationId, FinishedOperationEntry>,
    left: HashSet<Guid>,
}

/// Registers an attempt as running, until it is dropped.
pub(crate) struct RunningOperationGuard {
    census: Arc<OperationIndex>,
    attempt: Guid,
}

impl OperationIndex {
    pub(super) fn mark_running(self: &Arc<Self>, attempt: Guid) -> RunningOperationGuard {
        self.lock_state().running.insert(attempt);
        RunningOperationGuard { census: self.clone(), attempt }
    }

    /// Whether this attempt runs here.
    pub(super) fn is_running(&self, attempt: &str) -> bool {
        Guid::parse(attempt).is_some_and(|attempt| self.lock_state().running.contains(&attempt))
    }

    /// Records that the attempt ended with an unknown outcome. Its lock may stay with this gateway for other requests,
    /// so by the lock alone the operation would seem to be still running.
    pub(super) fn record_unknown_outcome(&self, attempt: Guid, id: OperationId) {
        self.lock_state().left.insert(attempt, id);
    }

    /// Whether this process has recorded that the attempt ended with an unknown outcome.
    pub(super) fn has_recorded_unknown_outcome(&self, attempt: &str) -> bool {
        Guid::parse(attempt).is_some_and(|attempt| self.lock_state().left.contains_key(&attempt))
    }

    /// The shard to scan next; all sessions of the process take the shards in turn. `shards`: all shards, sorted.
    pub(super) fn next_shard<'s>(&self, shards: &'s [String]) -> Option<&'s str> {
        let mut state = self.lock_state();
        let next = shards.iter().find(|shard| **shard > state.last).or(shards.first())?;
        state.last.clone_from(next);
        Some(next)
    }

    pub(super) fn snapshot(&self, shard: &str) -> OperationShardSnapshot {
        let state = self.lock_state();
        let finished = state.shelves.get(shard).map(|shard| shard.finished.clone()).unwrap_or_default();
        let here = |id: &OperationId| id.to_string()[..SHARD_DIGITS] == *shard;
        let left = state.left.iter().filter(|(_, id)| here(id)).map(|(attempt, _)| *attempt).collect();
        OperationShardSnapshot { finished, left }
    }

    /// Records a complete scan of a shard. `known`: the snapshot from before the scan. `admitted`: the attempts whose
    /// records were still in the admitted state.
    pub(super) fn record_shard_scan(
        &self,
        name: &str,
        known: &OperationShardSnapshot,
        admitted: &HashSet<Guid>,
        shard: OperationShard,
    ) {
        let mut state = self.lock_state();
        // An attempt in `left` whose record is no longer `admitted` has been resolved. Attempts that entered `left`
        // during the scan stay until the next scan.
        state.left.retain(|attempt, _| !known.left.contains(attempt) || admitted.contains(attempt));
        if shard.former {
            state.clean_since = None;
        }
        state.replace_shard(name, Some(OperationShard { looked_through: true, ..shard }));
    }

    /// Counts an operation that this gateway has admitted.
    pub(super) fn record_admitted(&self, id: &OperationId, owner: &OperationQuotaOwner) {
        let mut state = self.lock_state();
        let owner = Arc::new(owner.clone());
        state.tally.add(&owner);
        state.shelves.entry(id.to_string()[..SHARD_DIGITS].to_owned()).or_default().owners.push(owner);
    }

    /// Checks whether one more operation of the owner may be recorded.
    ///
    /// # Errors
    /// Returns an error if the owner has used up its quota.
    pub(super) fn check_quota(
        &self,
        owner: &OperationQuotaOwner,
        quota: OperationQuota,
    ) -> Result<(), AdmitOperationError> {
        self.lock_state().tally.check_quota(owner, quota)
    }

    /// Sets whether there are peers with an incompatible plan. Gateways of a former build always have one.
    pub fn set_incompatible_peers(&self, there: bool) {
        let mut state = self.lock_state();
        state.strangers = there;
        if there {
            state.clean_since = None;
        }
    }

    /// Whether an operation could still have the name that a former build gave it. A gateway of such a build may write
    /// after all shards have been scanned. So the answer is true until, for the length of `keep`, no operation had
    /// such a name and no gateway had an incompatible plan.
    pub(super) fn may_have_legacy_names(&self, keep: Duration, now: BootInstant) -> bool {
        self.lock_state().clean_since.is_none_or(|since| now.since(since) <= keep)
    }

    /// Keeps only these shards, and forgets all others, which are gone from ZooKeeper.
    pub(super) fn retain_shards(&self, shards: &[String], now: BootInstant) {
        let mut state = self.lock_state();
        let gone = state.shelves.keys().filter(|name| shards.binary_search(name).is_err());
        for name in gone.cloned().collect::<Vec<_>>() {
            state.replace_shard(&name, None);
        }
        let looked = |name: &String| state.shelves.get(name).is_some_and(|shard| shard.looked_through);
        state.complete |= shards.iter().all(looked);
        let clean = state.complete && !state.strangers && !state.shelves.values().any(|shard| shard.former);
        state.clean_since = if clean { state.clean_since.or(Some(now)) } else { None };
    }

    /// The number of operations with an unknown outcome in all shards, as last seen. `None`: some shards were not
    /// scanned yet.
    pub(super) fn unknown_count(&self) -> Option<usize> {
        let state = self.lock_state();
        state.complete.then(|| state.shelves.values().map(|shard| shard.unknown).sum())
    }

    fn lock_state(&self) -> MutexGuard<'_, OperationIndexState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OperationIndexState {
    fn replace_shard(&mut self, name: &str, shard: Option<OperationShard>) {
        let before = self.shelves.remove(name).unwrap_or_default();
        before.owners.iter().for_each(|owner| self.tally.remove(owner));
        if let Some(shard) = shard {
            shard.owners.iter().for_each(|owner| self.tally.add(owner));
            self.shelves.insert(name.to_owned(), shard);
        }
    }
}

/// The number of digits of an operation's name that name its shard.
const SHARD_DIGITS: usize = 2;

impl Drop for RunningOperationGuard {
    fn drop(&mut self) {
        self.census.lock_state().running.remove(&self.attempt);
    }
}

/// The most operations that are recorded in one of the 256 shards.
const MAX_PER_SHARD: i32 = 100_000 / 256;

/// The number of operations in each of the 256 shards, as last seen. It decides whether one more can be recorded.
#[derive(Debug, Default)]
pub struct CachedOperationShardCounts(RefCell<HashMap<u8, i32>>);

impl CachedOperationShardCounts {
    pub(super) fn record_count(&self, id: &OperationId, children: i32) {
        self.0.borrow_mut().insert(id.as_bytes()[0], children);
    }

    /// Whether there is capacity for one more operation in the shard. A cached count may be old: if it leaves
    /// capacity, it is used; otherwise the count is read from ZooKeeper.
    pub(super) async fn has_capacity<L: ZkClient>(
        &self,
        live: &ActiveSession<L>,
        id: &OperationId,
    ) -> Result<bool, AdmitOperationError> {
        let last = self.0.borrow().get(&id.as_bytes()[0]).copied().unwrap_or_default();
        if last < MAX_PER_SHARD {
            return Ok(true);
        }
        match live.client.stat(&live.paths.operation_shard_path(id)).await {
            Ok(seen) => {
                let children = seen.map_or(0, |seen| seen.children);
                self.record_count(id, children);
                Ok(children < MAX_PER_SHARD)
            }
            Err(fault) => Err(AdmitOperationError::Service(fault.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_process::randomness::SystemRandomness;

    const NOW: BootInstant = BootInstant::from_nanos(0);

    /// The shards are visited in turn, whichever session asks; a shard that has gone is skipped.
    #[test]
    fn shards_are_visited_in_turn() {
        let index = OperationIndex::default();
        let shards = ["0a", "7f", "ff"].map(str::to_owned);
        let turns: Vec<_> = (0..4).map(|_| index.next_shard(&shards).expect("some")).collect();
        assert_eq!(turns, ["0a", "7f", "ff", "0a"]);
        assert_eq!(index.next_shard(&shards[2..]), Some("ff"), "a shelf that has gone is passed over");
        assert_eq!(index.next_shard(&[]), None);
    }

    /// An operation with an unknown outcome stays in the index until a later scan of its own shard no longer finds it
    /// admitted.
    #[test]
    fn unknown_operation_is_indexed_until_decided() {
        let index = OperationIndex::default();
        let id = OperationId::from_bytes([0xab; 32]);
        let [old, new] = [(), ()].map(|()| Guid::new(&SystemRandomness));
        index.record_unknown_outcome(old, id);
        let known = index.snapshot("ab");
        index.record_unknown_outcome(new, id);
        index.record_shard_scan(
            "ab",
            &known,
            &[old].into(),
            OperationShard { unknown: 1, ..OperationShard::default() },
        );
        assert!(
            index.has_recorded_unknown_outcome(&old.to_string())
                && index.has_recorded_unknown_outcome(&new.to_string())
        );
        let elsewhere = index.snapshot("cd");
        index.record_shard_scan("cd", &elsewhere, &HashSet::new(), OperationShard::default());
        assert!(index.has_recorded_unknown_outcome(&old.to_string()), "another shelf says nothing of it");
        let known = index.snapshot("ab");
        index.record_shard_scan(
            "ab",
            &known,
            &[new].into(),
            OperationShard { unknown: 1, ..OperationShard::default() },
        );
        assert!(
            !index.has_recorded_unknown_outcome(&old.to_string())
                && index.has_recorded_unknown_outcome(&new.to_string())
        );
        index.retain_shards(&["ab", "cd"].map(str::to_owned), NOW);
        assert_eq!(index.unknown_count(), Some(1));
        index.retain_shards(&["cd".to_owned()], NOW);
        assert_eq!(index.unknown_count(), Some(0));
    }

    /// The count of unknown operations is available only after every shard has been read.
    #[test]
    fn unknown_count_needs_every_shard() {
        let index = OperationIndex::default();
        let shards = ["0a", "7f", "ff"].map(str::to_owned);
        index.retain_shards(&shards, NOW);
        assert_eq!(index.unknown_count(), None);
        for (name, expected) in [("0a", None), ("7f", None), ("ff", Some(3)), ("0a", Some(3))] {
            let shard = OperationShard { unknown: 1, ..OperationShard::default() };
            index.record_shard_scan(name, &index.snapshot(name), &HashSet::new(), shard);
            index.retain_shards(&shards, NOW);
            assert_eq!(index.unknown_count(), expected, "{name}");
        }
    }

    /// An admitted operation counts toward its quota at once, and until its shard has been read without it.
    #[test]
    fn admitted_operation_counts_toward_quota_immediately() {
        let index = OperationIndex::default();
        let id = OperationId::from_bytes([0xab; 32]);
        let owner = OperationQuotaOwner { route: "pay".into(), client: None };
        let quota = OperationQuota { route: 2, client: None };
        for _ in 0..2 {
            assert_eq!(index.check_quota(&owner, quota), Ok(()));
            index.record_admitted(&id, &owner);
        }
        assert_eq!(index.check_quota(&owner, quota), Err(AdmitOperationError::RouteFull));
        let shard = |owners| OperationShard { owners, ..OperationShard::default() };
        let ours = Arc::new(owner.clone());
        index.record_shard_scan(
            "ab",
            &index.snapshot("ab"),
            &HashSet::new(),
            shard(vec![ours.clone(), ours.clone()]),
        );
        assert_eq!(
            index.check_quota(&owner, quota),
            Err(AdmitOperationError::RouteFull),
            "counted twice, or not at all"
        );
        index.record_shard_scan("ab", &index.snapshot("ab"), &HashSet::new(), shard(vec![ours]));
        assert_eq!(index.check_quota(&owner, quota), Ok(()));
        index.retain_shards(&[], NOW);
        index.record_admitted(&id, &owner);
        assert_eq!(index.check_quota(&owner, quota), Ok(()), "a shelf that has gone has nothing");
    }

    const KEEP: Duration = Duration::from_secs(60);

    /// An index of two shards. Each call takes a minute and a second, which is longer than `keep`.
    #[derive(Default)]
    struct IndexFixture {
        census: OperationIndex,
        now: u64,
    }

    impl IndexFixture {
        fn may_have_legacy_names(&self) -> bool {
            self.census.may_have_legacy_names(KEEP, BootInstant::from_nanos(self.now))
        }

        /// Records a scan. Returns the answers just after it, and a minute and a second later.
        fn record_shard(&mut self, name: &str, former: bool) -> [bool; 2] {
            let shard = OperationShard { former, ..OperationShard::default() };
            self.census.record_shard_scan(name, &self.census.snapshot(name), &HashSet::new(), shard);
            self.check_twice()
        }

        fn check_twice(&mut self) -> [bool; 2] {
            self.census.retain_shards(&["0a", "ff"].map(str::to_owned), BootInstant::from_nanos(self.now));
            let soon = self.may_have_legacy_names();
            self.now += 61_000_000_000;
            [soon, self.may_have_legacy_names()]
        }
    }

    /// Legacy names are looked up until every shard has been without them for the retention time.
    #[test]
    fn legacy_names_checked_until_shards_clean() {
        let mut shards = IndexFixture::default();
        assert_eq!(shards.check_twice(), [true, true]);
        assert_eq!(shards.record_shard("0a", true), [true, true], "one was not looked through");
        assert_eq!(shards.record_shard("ff", false), [true, true], "one has some");
        assert_eq!(shards.record_shard("0a", false), [true, false], "somebody may write there meanwhile");
        assert_eq!(shards.check_twice(), [false, false]);
        let id = OperationId::from_bytes([0xff; 32]);
        shards.census.record_admitted(&id, &OperationQuotaOwner { route: "pay".into(), client: None });
        assert_eq!(shards.check_twice(), [false, false], "what is made now has no former name");
        assert_eq!(shards.record_shard("ff", true), [true, true], "somebody of a former build is at work");
        assert_eq!(shards.record_shard("ff", false), [true, false]);
    }

    /// Legacy names are looked up while a peer with an incompatible plan is present, and for the retention time
    /// after.
    #[test]
    fn legacy_names_checked_beside_incompatible_peers() {
        let mut shards = IndexFixture::default();
        for name in ["0a", "ff"] {
            shards.record_shard(name, false);
        }
        assert!(!shards.may_have_legacy_names());
        shards.census.set_incompatible_peers(true);
        assert!(shards.may_have_legacy_names(), "at once");
        assert_eq!(shards.check_twice(), [true, true]);
        shards.census.set_incompatible_peers(false);
        assert_eq!(shards.check_twice(), [true, false]);
    }
}
