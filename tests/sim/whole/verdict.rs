//! What must not be, in the history of one simulation.

use fencegate_tests::history::{History, Violation};

use super::{asking::Clients, upstream::Upstream};

/// The route that no guard stands before.
const BARE: &str = "bare";

/// `mild`: nothing has happened that a service without a guard is not promised to be spared from.
pub(super) fn verdict(mild: bool, upstream: &Upstream, clients: &Clients) -> Vec<String> {
    let (bare, guarded): (Vec<_>, Vec<_>) = clients.told().into_iter().partition(|told| told.route == BARE);
    let history = |executions, told: Vec<super::asking::Told>| History {
        executions,
        attempts: told.into_iter().map(|told| told.attempt).collect(),
    };
    let mut wrong = history(upstream.guarded(), guarded).violations();
    let without = history(upstream.bare(), bare).violations();
    // Nobody compares tokens at that door: an overlap after a pause is what a guard is for.
    let promised = |violation: &Violation| {
        mild || !matches!(violation, Violation::Overlap { .. } | Violation::NotNewer { .. })
    };
    wrong.extend(without.into_iter().filter(promised));
    wrong.iter().map(|violation| format!("{violation:?}")).collect()
}

/// Executions behind the guard, and the tenures that they were of.
pub(super) fn exercised(upstream: &Upstream) -> (u64, u64) {
    let history = History { executions: upstream.guarded(), attempts: Vec::new() };
    (history.executions.len() as u64, history.tenures() as u64)
}
