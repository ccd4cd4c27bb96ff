//! Finds the violations in the history of one simulation.

use fencegate_tests::history::{History, HistoryVerdict, PromiseCondition, Violation};

use super::{
    addresses::{LONGEST_EXECUTION, MAX_EXECUTION},
    clients::SimClients,
    schedule::UpstreamPath,
    upstream::SimUpstream,
};

/// What was found in a history.
pub(super) struct HistoryFindings {
    pub(super) wrong: Vec<String>,
    /// The number of violations outside of the promise.
    pub(super) outside: u64,
}

/// The route without a guard.
const BARE: &str = "bare";

/// `mild`: the schedule has only accidents that are harmless even for a service without a guard.
pub(super) fn judge(
    mild: bool,
    way: UpstreamPath,
    upstream: &SimUpstream,
    clients: &SimClients,
) -> HistoryFindings {
    let (bare, guarded): (Vec<_>, Vec<_>) =
        clients.answers().into_iter().partition(|told| told.route == BARE);
    let history = |executions, told: Vec<super::clients::ClientAnswer>| History {
        executions,
        attempts: told.into_iter().map(|told| told.attempt).collect(),
    };
    let guarded = history(upstream.guarded_executions(), guarded);
    let HistoryVerdict { broken: mut wrong, outside } = match way {
        UpstreamPath::Direct => HistoryVerdict { broken: guarded.violations(), ..HistoryVerdict::default() },
        UpstreamPath::Relayed => guarded.judge(PromiseCondition::OverAfterSending(MAX_EXECUTION)),
        UpstreamPath::Filtered => guarded.judge(PromiseCondition::Lasts(LONGEST_EXECUTION)),
    };
    let without = history(upstream.bare_executions(), bare).violations();
    // No service compares tokens on this route, so executions may overlap after a pause. Only a guard prevents that.
    let promised = |violation: &Violation| {
        mild || !matches!(violation, Violation::Overlap { .. } | Violation::NotNewer { .. })
    };
    wrong.extend(without.into_iter().filter(promised));
    HistoryFindings {
        wrong: wrong.iter().map(|violation| format!("{violation:?}")).collect(),
        outside: outside.len() as u64,
    }
}

/// The number of executions behind the guard, and the number of their tenures.
pub(super) fn exercised_counts(upstream: &SimUpstream) -> (u64, u64) {
    let history = History { executions: upstream.guarded_executions(), attempts: Vec::new() };
    (history.executions.len() as u64, history.tenures() as u64)
}
