//! Finds the routes that lock one key, but do not agree about it: whoever asks first would decide how it is kept, and
//! where one of them only observes, the other one is promised nothing.

use std::collections::HashMap;

use super::{Faults, fence::Fenced};
use crate::{
    diagnose::{Code, Diagnostic},
    plan::{Caching, Enforce, Hold, Mode, ModeRule},
};

/// A route that keeps its key.
struct Keeping<'r> {
    route: &'r str,
    caching: Caching,
}

/// See [`keep`] for what counts as one key.
pub(super) fn check<'r>(fences: &[(&'r str, &'r Fenced)], faults: &Faults) {
    keep(fences, faults);
    enforce(fences, faults);
}

/// `fences` with the names of their routes, in the order of the file.
///
/// Keys are taken for one where their templates differ in their variables only. Two templates such as `a/{path.x}` and
/// `{path.y}/b` can give one key, too, and are not found. A node is kept per mode, so readers may keep it longer.
fn keep<'r>(fences: &[(&'r str, &'r Fenced)], faults: &Faults) {
    let mut known: HashMap<(String, Mode), Keeping> = HashMap::new();
    for &(route, Fenced { fence, place }) in fences {
        let Hold::Cached(caching) = fence.hold else { continue };
        let shapes = fence.keys.iter().flat_map(|key| modes(fence.mode).map(|mode| (key.shape(), mode)));
        let unlike = shapes.filter_map(|shape| {
            let first = known.entry(shape).or_insert(Keeping { route, caching });
            (first.caching != caching).then_some(first.route)
        });
        // Both modes of a route would say the same.
        if let Some(other) = unlike.collect::<Vec<_>>().first() {
            let message = format!("routes `{other}` and `{route}` keep one key in unlike ways");
            let remedy = "write the same `hold` on both, or write it once in `defaults`";
            faults.push(Diagnostic::new(Code::UnlikeHold, message).at(*place).remedy(remedy));
        }
    }
}

fn enforce<'r>(fences: &[(&'r str, &'r Fenced)], faults: &Faults) {
    let mut known: HashMap<String, (&str, Enforce)> = HashMap::new();
    for &(route, Fenced { fence, place }) in fences {
        let unlike = fence.keys.iter().filter_map(|key| {
            let (first, enforce) = *known.entry(key.shape()).or_insert((route, fence.enforce));
            (enforce != fence.enforce).then_some(first)
        });
        if let Some(other) = unlike.collect::<Vec<_>>().first() {
            let (observes, enforces) =
                if fence.enforce == Enforce::Observe { (route, *other) } else { (*other, route) };
            let message = format!(
                "route `{observes}` only observes, so route `{enforces}` with the same key is promised nothing"
            );
            let remedy = "write the same `enforce` on both, or write it once in `defaults`";
            faults.push(Diagnostic::new(Code::UnlikeEnforce, message).at(*place).remedy(remedy));
        }
    }
}

fn modes(rule: ModeRule) -> impl Iterator<Item = Mode> {
    let takes = move |mode: &Mode| match rule {
        ModeRule::ByMethod => true,
        ModeRule::Exclusive => *mode == Mode::Exclusive,
        ModeRule::Shared => *mode == Mode::Shared,
    };
    [Mode::Exclusive, Mode::Shared].into_iter().filter(takes)
}
