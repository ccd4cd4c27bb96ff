//! Reads `forward`: whether a request is sent to the gateway that holds its key. Reports it for fences whose keys no
//! gateway keeps.

use super::mapping::MappingReader;
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{Enforcement, FenceRule, LockModeRule, LockPlacement, LockReusePolicy, PeerForwardPolicy},
};

/// Reads the `forward` of `block` alone, without defaults. `reached`: the file has a peer listener.
pub(super) fn parse_forward(block: &mut MappingReader, reached: bool) -> Option<PeerForwardPolicy> {
    let written = block.keyword("forward", PeerForwardPolicy::WORDS);
    if written == Some(PeerForwardPolicy::Holder) && !reached {
        let message = "requests cannot be sent on to other gateways: the policy has no `peer`, \
                       which says where gateways reach each other";
        let remedy = "add `peer: {address: 0.0.0.0:9910, advertise: gw-1.internal:9910}` to the policy, or write `never`";
        block.report("forward", Diagnostic::new(DiagnosticCode::MissingField, message).with_remedy(remedy));
    }
    written
}

/// The `forward` that applies to a fence. If no gateway keeps the key between requests, no request is forwarded. A
/// value in `defaults` is then ignored, and one on the fence itself is reported.
pub(super) fn resolve_forward(
    fence: &mut MappingReader,
    terms: Option<PeerForwardPolicy>,
    settled: &FenceRule,
) -> PeerForwardPolicy {
    let forward = terms.unwrap_or_default();
    match (forward, no_forward_reason(settled)) {
        (PeerForwardPolicy::Holder, Some((reason, remedy))) => {
            if fence.is_present("forward") {
                let message = format!("`forward: holder` has no effect {reason}");
                fence.report(
                    "forward",
                    Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy),
                );
            }
            PeerForwardPolicy::Never
        }
        _ => forward,
    }
}

/// The reason for which no request of a fence can be forwarded, and the remedy.
fn no_forward_reason(fence: &FenceRule) -> Option<(&'static str, &'static str)> {
    if fence.set {
        return Some(("on a set of keys", "leave it out: no gateway keeps a set after its request"));
    }
    if fence.permits().is_some() {
        return Some(("with `permits`", "leave it out: no gateway keeps a permit after its request"));
    }
    if fence.placing != LockPlacement::Native {
        let remedy = "leave it out: who stands in line behind another program cannot be sent on to it";
        return Some(("on a lock of other programs", remedy));
    }
    if fence.mode == LockModeRule::Shared {
        let remedy = "leave it out: readers at several gateways hold the key at the same time";
        return Some(("with `mode: shared`", remedy));
    }
    if fence.hold == LockReusePolicy::Strict {
        let remedy =
            "leave it out, or write `hold: {mode: cached}`: else no gateway keeps the key after its request";
        return Some(("with a `hold` that is `strict`", remedy));
    }
    (fence.enforce == Enforcement::Observe).then_some((
        "with `enforce: observe`",
        "leave it out until you write `enforce: refuse`: what only observes is never sent on",
    ))
}
