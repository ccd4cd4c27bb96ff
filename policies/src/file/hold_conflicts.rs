//! Finds routes that lock the same key and differ in how they keep the lock, or in whether they enforce it. With
//! different `hold`, the setting of whichever request came first would apply. With different `enforce`, the enforcing
//! route is not protected.

use std::collections::HashMap;

use super::{diagnostics::Diagnostics, fence::ParsedFence};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{
        CachedHoldLimits, Enforcement, IdempotencyRule, IdempotencyStore, LockMode, LockModeRule,
        LockReusePolicy, UpstreamId,
    },
};

/// A route that keeps its lock between requests.
struct CachedHoldRoute<'r> {
    route: &'r str,
    caching: CachedHoldLimits,
}

/// Reports routes that lock the same key with different `hold` or `enforce`. See [`check_holds`] for when two
/// templates count as one key.
pub(super) fn check_hold_conflicts<'r>(fences: &[(&'r str, &'r ParsedFence)], faults: &Diagnostics) {
    check_holds(fences, faults);
    check_enforcement(fences, faults);
}

/// Reports routes to two upstreams that store operations in ZooKeeper without a `scope`, which would mix them. The
/// name of an upstream does not separate them, because it has a meaning in this file only. One of the two services
/// may be left without a scope.
pub(super) fn check_idempotency_scopes<'r>(
    fences: impl Iterator<Item = (&'r str, &'r ParsedFence, UpstreamId)>,
    faults: &Diagnostics,
) {
    let mut first: Option<(&str, UpstreamId)> = None;
    for (route, ParsedFence { fence, place, .. }, upstream) in fences {
        let zookeeper =
            |once: &&IdempotencyRule| once.store == IdempotencyStore::ZooKeeper && once.scope.is_empty();
        if fence.once.as_ref().filter(zookeeper).is_none() {
            continue;
        }
        let (other, known) = *first.get_or_insert((route, upstream));
        if known != upstream {
            let message = format!(
                "routes `{other}` and `{route}` lead to two upstreams and call their operations alike"
            );
            let remedy = "write `scope: <a name>` into `once` of the newer one: a word for the service that stays as \
                          it is, whatever its upstream is called";
            faults.push(Diagnostic::new(DiagnosticCode::OneScope, message).at(*place).with_remedy(remedy));
        }
    }
}

/// Reports routes that keep the same key with different `hold`. `fences`: with the names of their routes, in the
/// order of the file.
///
/// Two keys count as one if their templates differ only in the names of variables. Templates such as `a/{path.x}` and
/// `{path.y}/b` can also give one key; those are not found. Each mode has its own node, so routes for readers may
/// keep theirs longer.
fn check_holds<'r>(fences: &[(&'r str, &'r ParsedFence)], faults: &Diagnostics) {
    let mut known: HashMap<(String, LockMode), CachedHoldRoute> = HashMap::new();
    for &(route, ParsedFence { fence, place, .. }) in fences {
        let LockReusePolicy::Cached(caching) = fence.hold else { continue };
        let shapes =
            fence.keys.iter().flat_map(|key| possible_modes(fence.mode).map(|mode| (key.shape(), mode)));
        let unlike = shapes.filter_map(|shape| {
            let first = known.entry(shape).or_insert(CachedHoldRoute { route, caching });
            (first.caching != caching).then_some(first.route)
        });
        // One report is enough, because a report for the other mode would say the same.
        if let Some(other) = unlike.collect::<Vec<_>>().first() {
            let message = format!("routes `{other}` and `{route}` keep one key in unlike ways");
            let remedy = "write the same `hold` on both, or write it once in `defaults`";
            faults.push(Diagnostic::new(DiagnosticCode::UnlikeHold, message).at(*place).with_remedy(remedy));
        }
    }
}

fn check_enforcement<'r>(fences: &[(&'r str, &'r ParsedFence)], faults: &Diagnostics) {
    let mut known: HashMap<String, (&str, Enforcement)> = HashMap::new();
    for &(route, ParsedFence { fence, place, .. }) in fences {
        let unlike = fence.keys.iter().filter_map(|key| {
            let (first, enforce) = *known.entry(key.shape()).or_insert((route, fence.enforce));
            (enforce != fence.enforce).then_some(first)
        });
        if let Some(other) = unlike.collect::<Vec<_>>().first() {
            let (observes, enforces) =
                if fence.enforce == Enforcement::Observe { (route, *other) } else { (*other, route) };
            let message = format!(
                "route `{observes}` only observes, so route `{enforces}` with the same key is promised nothing"
            );
            let remedy = "write the same `enforce` on both, or write it once in `defaults`";
            faults
                .push(Diagnostic::new(DiagnosticCode::UnlikeEnforce, message).at(*place).with_remedy(remedy));
        }
    }
}

fn possible_modes(rule: LockModeRule) -> impl Iterator<Item = LockMode> {
    let takes = move |mode: &LockMode| match rule {
        LockModeRule::ByMethod => true,
        LockModeRule::Exclusive => *mode == LockMode::Exclusive,
        LockModeRule::Shared => *mode == LockMode::Shared,
    };
    [LockMode::Exclusive, LockMode::Shared].into_iter().filter(takes)
}
