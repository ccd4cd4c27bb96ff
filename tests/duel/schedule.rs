//! The faults of one run and their times. A seed gives every lock system the same schedule.

use std::{env, time::Duration};

use fencegate_tests::memory::SeededRng;

/// The lease time of each lock: nearly the shortest that etcd grants.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

const PAUSES: usize = 2;
const KILLS: usize = 1;
const SEEDS: [u64; 3] = [20, 21, 22];

pub(crate) struct FaultSchedule {
    pub(crate) seed: u64,
    pub(crate) accidents: Vec<TargetedFault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TargetedFault {
    /// The index of the process, modulo the number of processes.
    pub(crate) victim: usize,
    pub(crate) mishap: ProcessFault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessFault {
    /// SIGSTOP between the last check of the lock and the request, and SIGCONT after this time.
    Pause(Duration),
    /// SIGKILL while the service works on the request.
    Kill,
}

impl FaultSchedule {
    pub(crate) fn from_seed(seed: u64) -> Self {
        let dice = SeededRng::new(seed);
        // Longer than the lease by more than a second: the end of a session is noticed a moment late, and the next
        // holder needs time to execute.
        let longer = LEASE + Duration::from_millis(1600)..LEASE + Duration::from_millis(2600);
        let mut mishaps: Vec<ProcessFault> =
            (0..PAUSES).map(|_| ProcessFault::Pause(dice.within(&longer))).collect();
        for _ in 0..KILLS {
            mishaps.insert(dice.index(mishaps.len() + 1), ProcessFault::Kill);
        }
        let accident = |mishap| TargetedFault { victim: dice.index(64), mishap };
        Self { seed, accidents: mishaps.into_iter().map(accident).collect() }
    }

    /// The schedules of the seeds in `FENCEGATE_DUEL_SEEDS`, separated by blanks, or of three seeds if it is not
    /// set.
    ///
    /// # Panics
    /// If the variable has something other than numbers.
    pub(crate) fn all() -> Vec<Self> {
        let told = env::var("FENCEGATE_DUEL_SEEDS").unwrap_or_default();
        let told: Vec<u64> = told.split_whitespace().map(|seed| seed.parse().expect("a number")).collect();
        let seeds = if told.is_empty() { SEEDS.to_vec() } else { told };
        seeds.into_iter().map(Self::from_seed).collect()
    }
}

/// A seed repeats its schedule, and each pause is longer than the lease.
#[test]
fn seed_repeats_schedule_with_long_pauses() {
    for seed in 0..100 {
        let [one, other] = [FaultSchedule::from_seed(seed), FaultSchedule::from_seed(seed)];
        assert_eq!(one.accidents, other.accidents);
        let pauses = one.accidents.iter().filter_map(|accident| match accident.mishap {
            ProcessFault::Pause(pause) => Some(pause),
            ProcessFault::Kill => None,
        });
        let pauses: Vec<_> = pauses.collect();
        assert!(pauses.len() == PAUSES && pauses.iter().all(|pause| *pause > LEASE), "{pauses:?}");
        assert_eq!(one.accidents.len(), PAUSES + KILLS);
    }
    assert_ne!(FaultSchedule::from_seed(1).accidents, FaultSchedule::from_seed(2).accidents);
}
