//! Reads `delay`: the time that a new holder waits after a holder that ended without releasing the lock. Refuses
//! fields of a fence that cannot stand beside a delay.

use std::time::Duration;

use super::{mapping::MappingReader, scalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{FencingLevel, ForeignLockLayout, LockModeRule, PeerForwardPolicy, Upstream},
};

/// The fencing level with its delay. `delay` has no default, because only the operator knows how long the service
/// may go on executing.
pub(super) fn level(upstream: &mut MappingReader, fencing: Option<FencingLevel>) -> Option<FencingLevel> {
    let delay = upstream.value("delay", scalar::time_limit);
    match fencing {
        Some(FencingLevel::Delay(_)) => {
            upstream.require("delay", "delay: 30s");
            delay.map(FencingLevel::Delay)
        }
        Some(fencing) if upstream.is_present("delay") => {
            let message = format!("`delay` has no effect with `fencing: {}`", fencing.as_str());
            let remedy = "leave it out, or write `fencing: delay`";
            upstream.report("delay", Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy));
            Some(fencing)
        }
        _ => fencing,
    }
}

/// The default of `response_timeout` in seconds for an upstream with this delay.
pub(super) fn default_response_timeout_secs(delay: Duration) -> u64 {
    delay.as_secs().clamp(1, 15)
}

/// Reports a delay that is shorter than the response timeout: a request may run that long after its holder is gone.
pub(super) fn check_delay_covers_timeout(block: &mut MappingReader, upstream: &Upstream) {
    let Some(delay) = upstream.fencing.handover_delay().filter(|delay| upstream.response_timeout > *delay)
    else {
        return;
    };
    let field = if block.is_present("response_timeout") { "response_timeout" } else { "delay" };
    let message = format!(
        "a request to `{}` may take {}, but the next holder begins {} after a holder that is gone",
        upstream.name,
        scalar::format_duration(upstream.response_timeout),
        scalar::format_duration(delay),
    );
    let remedy =
        "make `delay` at least as long as `response_timeout`, and as the longest execution of the service";
    block.report(field, Diagnostic::new(DiagnosticCode::DelayTooShort, message).with_remedy(remedy));
}

/// Refuses fields that a fence with a delay cannot have. Returns the value of `forward` if the upstream has a delay.
/// `foreign`: the layout, if the locks of the fence are shared with other programs.
pub(super) fn check_delay_fence_fields(
    block: &mut MappingReader,
    level: Option<FencingLevel>,
    mode: LockModeRule,
    foreign: Option<ForeignLockLayout>,
    forward: Option<PeerForwardPolicy>,
) -> Option<PeerForwardPolicy> {
    level?.handover_delay()?;
    if mode != LockModeRule::Exclusive {
        let message = "`fencing: delay` is for keys that one request has alone: the record in ZooKeeper names one holder";
        let remedy = "write `mode: exclusive` here, in `defaults` too, or put a guard beside the service";
        let field = if block.is_present("mode") { "mode" } else { "key" };
        block.report(field, Diagnostic::new(DiagnosticCode::DelayShared, message).with_remedy(remedy));
    }
    if let Some(layout) = foreign {
        let message = format!("`fencing: delay` does not exist with `layout: {}`", layout.as_str());
        let remedy = "leave `layout` out, or write another level on the upstream: programs that know nothing of the record \
                      of the last holder neither keep it nor wait";
        block.report("layout", Diagnostic::new(DiagnosticCode::NotInLayout, message).with_remedy(remedy));
    }
    // A `forward` in `defaults` is meant for other fences. It is a mistake only on the fence itself.
    if forward == Some(PeerForwardPolicy::Holder) && block.is_present("forward") {
        let message = "no request is sent on where `fencing: delay` is: the gateway that has the key may only be waiting \
                       until its delay is over";
        let remedy = "leave `forward` out here";
        block.report("forward", Diagnostic::new(DiagnosticCode::DelayForward, message).with_remedy(remedy));
    }
    Some(PeerForwardPolicy::Never)
}
