//! Finds the violations in the history of one simulation.

use fencegate_tests::history::{History, HistoryVerdict, PromiseCondition, Violation};

use super::{
    addresses::{LONGEST_EXECUTION, MAX_EXECUTION},
    clients::SimClients,
    schedule::UpstreamPath,
    upstream::SimUpstream,
};

/// The violations in a history.
pub(super) struct HistoryFindings {
    pub(super) wrong: Vec<String>,
    /// The number of violations that the promise does not exclude.
    pub(super) outside: u64,
}

/// The route without a guard.
const BARE: &str = "bare";

/// Judges the history of a simulation. `mild`: all accidents of its schedule are harmless even without a guard.
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
    // On the route without a guard no service compares tokens, so executions may overlap after a pause unless all
    // accidents are harmless.
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
