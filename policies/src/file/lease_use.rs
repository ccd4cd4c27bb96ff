//! Reads whether requests of a fence run under the lease of a client, and reports fences whose requests could not.

use super::mapping::MappingReader;
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{Enforcement, FenceRule, FencingLevel, LargeBodyPolicy, NestedRequestPolicy, RequestLeasePolicy},
};

pub(super) fn parse_lease_use(fence: &mut MappingReader) -> RequestLeasePolicy {
    // `never` is not a word of the field: a fence without `lease` has this value.
    fence.keyword("lease", &RequestLeasePolicy::WORDS[1..]).unwrap_or_default()
}

/// Reports a fence whose requests cannot run under a lease. `level`: the level of the upstream, if it is known.
/// `once` may stand beside `lease`: an operation is named by its request, so a repeat is recognised under any lock.
pub(super) fn check_lease_use(block: &mut MappingReader, fence: &FenceRule, level: Option<FencingLevel>) {
    if fence.lease == RequestLeasePolicy::Never {
        return;
    }
    let foreign = fence.locks().any(|(_, placing)| placing.layout().foreign_layout().is_some());
    let (reason, remedy) = if foreign {
        (
            "its locks lie where other programs have theirs, and a lease is a lock of our own",
            "leave `lease` or `layout` out",
        )
    } else if level.is_some_and(|level| level.handover_delay().is_some()) {
        (
            "its upstream has `fencing: delay`, and a lease that is handed on waits for no delay",
            "leave `lease` out, or put a guard beside the service",
        )
    } else if fence.enforce == Enforcement::Observe {
        (
            "it only observes: requests without a lease would pass beside the client that holds one",
            "write `enforce: refuse` here, or leave `lease` out until then",
        )
    } else if fence.nested == NestedRequestPolicy::Allow {
        (
            "services may call back: a call runs inside a dispatch of the gateway, and this one is of a client, which can end it \
             at any time",
            "write `nested: ignore` here, or leave `lease` out",
        )
    } else if fence.large_bodies != LargeBodyPolicy::Refuse {
        (
            "it streams bodies, and only a body that was taken in full can be sent on to the gateway that has the lease",
            "leave `large_bodies` out, and raise `limits.max_body` instead",
        )
    } else {
        return;
    };
    let message = format!("no request of this fence can run under a lease: {reason}");
    block.report("lease", Diagnostic::new(DiagnosticCode::LeaseUnfit, message).with_remedy(remedy));
}
