//! The time limits of a guard, and the bounds of its state.

use std::time::Duration;

use fencegate_policies::plan;
use fencegate_process::clock::BootInstant;

use crate::admission::LivenessProbeConfig;

/// The time limits of a guard, and the bounds of its state.
#[derive(Debug, Clone)]
pub struct GuardConfig {
    /// How long a newer tenure waits for older executions.
    pub settle: Duration,
    /// How long after its last byte an execution without an observed end counts as over.
    pub max_execution: Duration,
    /// A dispatch is sent within this time after its admission, or not at all.
    pub send_within: Duration,
    /// Whether a filter behind the guard refuses dispatches that arrive later than `send_within` after the admission.
    pub expiry: plan::NotAfterEnforcement,
    /// The largest difference between this wall clock and those of gateways.
    pub clock_error: Duration,
    /// The watermarks of keys that were not used for this time are forgotten, and raise the floor.
    pub evict_after: Duration,
    pub enforce: plan::Enforcement,
    pub journal: plan::IdempotencyJournalSettings,
    /// The endpoints that are probed while anything is in doubt. `None`: they are not probed, and the time that
    /// passes at this guard counts.
    pub watch: Option<LivenessProbeConfig>,
}

/// The most keys that are kept. Beyond that the least recently used ones are evicted early.
pub const MOST_KEYS: usize = 1_000_000;

/// The settings of a policy that sets none.
impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(10),
            max_execution: Duration::from_secs(30),
            send_within: Duration::from_secs(5),
            expiry: plan::NotAfterEnforcement::Ignored,
            clock_error: Duration::from_millis(500),
            evict_after: Duration::from_secs(3600),
            enforce: plan::Enforcement::Refuse,
            journal: plan::IdempotencyJournalSettings {
                keep: Duration::from_secs(86_400),
                max_body: 64 << 10,
                most: 1 << 30,
                final_statuses: Vec::new(),
                probe: None,
            },
            watch: None,
        }
    }
}

impl GuardConfig {
    /// Whether a probe's answer "not done" is final if it is given when nothing may be at work any more. It is
    /// if no earlier dispatch can begin after the answer: either the service refuses dispatches after
    /// `Fencing-Not-After`, or it closes the operation name as it answers. Otherwise a queue, a relay or a
    /// paused process may deliver the request after the answer.
    pub fn not_done_is_final(&self) -> bool {
        self.expiry == plan::NotAfterEnforcement::Enforced
            || self.journal.probe.as_ref().is_some_and(|probe| probe.closes)
    }

    /// The settings of a policy.
    pub fn from_plan(plan: &plan::GuardPlan) -> Self {
        Self {
            settle: plan.settle,
            max_execution: plan.max_execution,
            send_within: plan.send_within,
            expiry: plan.serving.upstreams[0].expiry,
            clock_error: plan.clock_error,
            evict_after: plan.evict_after,
            enforce: plan.enforce,
            journal: plan.journal.clone(),
            watch: endpoint_probe_config(plan),
        }
    }

    /// How long after the end of this process all executions that it has sent are over.
    pub fn max_completion_delay(&self) -> Duration {
        self.late_start_window() + self.max_execution
    }

    /// How long after its last byte an execution may still begin. With `not_after: enforced` a dispatch may arrive,
    /// and begin, until `send_within` after its admission.
    pub fn late_start_window(&self) -> Duration {
        match self.expiry {
            plan::NotAfterEnforcement::Ignored => Duration::ZERO,
            plan::NotAfterEnforcement::Enforced => self.send_within,
        }
    }

    /// The start of `max_execution` for a dispatch that was admitted at `since` and whose last byte was written at
    /// `last`.
    pub fn latest_start(&self, since: Option<BootInstant>, last: BootInstant) -> BootInstant {
        match (self.expiry, since) {
            (plan::NotAfterEnforcement::Enforced, Some(since)) => last.max(since + self.send_within),
            _ => last,
        }
    }
}

/// `None` unless the policy has a path for health checks: a service must not get a probe that it has not opted
/// into.
fn endpoint_probe_config(plan: &plan::GuardPlan) -> Option<LivenessProbeConfig> {
    let upstream = plan.serving.upstreams.first()?;
    upstream.sharing.health.as_ref()?;
    let endpoints = upstream.endpoints.iter().map(ToString::to_string).collect();
    let every = (plan.max_execution / 10).clamp(Duration::from_millis(100), Duration::from_secs(1));
    Some(LivenessProbeConfig { endpoints, interval: every })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An execution counts from its latest possible start. A relay may hold the bytes for any time: what it delivers
    /// after that moment is refused, and what it delivers before may run from then on.
    #[test]
    fn execution_counts_from_latest_start() {
        let at = |seconds| BootInstant::from_nanos(0) + Duration::from_secs(seconds);
        let ignored = GuardConfig::default();
        let enforced = GuardConfig { expiry: plan::NotAfterEnforcement::Enforced, ..GuardConfig::default() };
        assert_eq!(ignored.latest_start(Some(at(100)), at(101)), at(101));
        assert_eq!(enforced.latest_start(Some(at(100)), at(101)), at(105));
        assert_eq!(enforced.latest_start(Some(at(100)), at(130)), at(130));
        assert_eq!(enforced.latest_start(None, at(101)), at(101));
        let longest = [&ignored, &enforced].map(GuardConfig::max_completion_delay);
        assert_eq!(longest, [30, 35].map(Duration::from_secs));
    }
}
