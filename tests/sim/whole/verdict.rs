//! Finds the violations in the history of one simulation.

use fencegate_tests::history::{History, Violation};

use super::{asking::Clients, upstream::Upstream};

/// The route without a guard.
const BARE: &str = "bare";

/// `mild`: the schedule has only accidents that are harmless even for a service without a guard.
pub(super) fn verdict(mild: bool, upstream: &Upstream, clients: &Clients) -> Vec<String> {
    let (bare, guarded): (Vec<_>, Vec<_>) = clients.told().into_iter().partition(|told| told.route == BARE);
    let history = |executions, told: Vec<super::asking::Told>| History {
        executions,
        attempts: told.into_iter().map(|told| told.attempt).collect(),
    };
    let mut wrong = history(upstream.guarded(), guarded).violations();
    let without = history(upstream.bare(), bare).violations();
    // Nobody compares tokens on this route, so executions may overlap after a pause. Only a guard prevents that.
    let promised = |violation: &Violation| {
        mild || !matches!(violation, Violation::Overlap { .. } | Violation::NotNewer { .. })
    };
    wrong.extend(without.into_iter().filter(promised));
    wrong.iter().map(|violation| format!("{violation:?}")).collect()
}

/// The number of executions behind the guard, and the number of their tenures.
pub(super) fn exercised(upstream: &Upstream) -> (u64, u64) {
    let history = History { executions: upstream.guarded(), attempts: Vec::new() };
    (history.executions.len() as u64, history.tenures() as u64)
}
