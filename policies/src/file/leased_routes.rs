//! Compares the leases of a policy with its fenced routes: each route that uses leases must be able to get one, and
//! a lease must not take another lock for a key than a route does.

use super::{diagnostics::Diagnostics, fence::ParsedFence, leases::ParsedLeases};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    key::{GlobRelation, KeyTemplate},
    plan::{FencingLevel, LeaseGrantSettings, LeasePrincipal, LockPlacement, RequestLeasePolicy},
};

/// A fenced route: its name, its fence, and the level of its upstream.
pub(super) type LeasableRoute<'r> = (&'r str, &'r ParsedFence, Option<FencingLevel>);

pub(super) fn check_leased_routes(routes: &[LeasableRoute], granting: &ParsedLeases, faults: &Diagnostics) {
    match granting {
        ParsedLeases::Absent => routes.iter().for_each(|route| report_no_grants(route, faults)),
        ParsedLeases::Invalid => {}
        ParsedLeases::Leases(leases) => {
            for route in routes {
                report_no_principal(route, leases, faults);
                report_other_lock(route, leases, faults);
            }
        }
    }
}

/// Reports a route that uses leases although the policy grants none.
fn report_no_grants((name, fenced, _): &LeasableRoute, faults: &Diagnostics) {
    let (code, message) = match fenced.fence.lease {
        RequestLeasePolicy::Never => return,
        RequestLeasePolicy::Optional => (
            DiagnosticCode::NoEffect,
            "`lease: optional` has no effect: the policy has no `leases`".to_owned(),
        ),
        RequestLeasePolicy::Required => {
            let message = format!(
                "route `{name}` refuses every request: it asks for a lease, and the policy has no `leases`"
            );
            (DiagnosticCode::NoLease, message)
        }
    };
    let remedy = "add `leases: {principals: [...]}` to the policy, or leave `lease` out";
    faults.push(Diagnostic::new(code, message).at(fenced.leased).with_remedy(remedy));
}

/// Reports a route that requires a lease although no principal may hold its keys.
fn report_no_principal((name, fenced, _): &LeasableRoute, leases: &LeaseGrantSettings, faults: &Diagnostics) {
    if fenced.fence.lease != RequestLeasePolicy::Required {
        return;
    }
    let may = |principal: &LeasePrincipal| fenced.fence.templates().all(|key| covers(principal, key));
    if !leases.principals.iter().any(may) {
        let message = format!(
            "route `{name}` refuses every request: it asks for a lease, and no principal may have one of its keys"
        );
        let remedy = "add the keys to `keys` of a principal";
        faults.push(Diagnostic::new(DiagnosticCode::NoLease, message).at(fenced.leased).with_remedy(remedy));
    }
}

/// Reports a principal that may hold keys which a route locks in a foreign layout or with a delay, because a lease
/// takes the native lock of its key and waits for no delay.
fn report_other_lock(
    (name, fenced, level): &LeasableRoute,
    leases: &LeaseGrantSettings,
    faults: &Diagnostics,
) {
    let delayed = level.is_some_and(|level| level.handover_delay().is_some());
    let elsewhere = |placing: &LockPlacement| delayed || placing.layout().foreign_layout().is_some();
    let unlike = fenced.fence.locks().filter(|(_, placing)| elsewhere(placing));
    let both = unlike.flat_map(|(key, _)| leases.principals.iter().map(move |principal| (key, principal)));
    let Some((_, principal)) = both.into_iter().find(|(key, principal)| covers(principal, key)) else {
        return;
    };
    let how = if delayed { "with a delay" } else { "where other programs have theirs" };
    let message = format!(
        "a lease of `{}` would have another lock than route `{name}`, which takes it {how}",
        principal.name
    );
    let remedy = format!("give `{}` patterns that cover no key of the route", principal.name);
    faults
        .push(Diagnostic::new(DiagnosticCode::LeaseElsewhere, message).at(fenced.placed).with_remedy(remedy));
}

fn covers(principal: &LeasePrincipal, key: &KeyTemplate) -> bool {
    principal.keys.iter().any(|pattern| pattern.glob().relation_to(&key.glob()) == GlobRelation::Overlapping)
}
