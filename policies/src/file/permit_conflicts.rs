//! Finds routes that let different numbers of requests hold the same key, and keys that look like the permit of
//! another key.

use super::{diagnostics::Diagnostics, fence::ParsedFence, layout_conflicts::may_give_same_key};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    key::GlobRelation,
    plan::{FenceRule, LockPlacement},
};

/// Compares each pair of fences of which at least one has permits; there are few such fences. `fences`: with the
/// names of their routes, in the order of the file.
pub(super) fn check_permit_conflicts<'r>(fences: &[(&'r str, &'r ParsedFence)], faults: &Diagnostics) {
    let has = |fenced: &ParsedFence| fenced.fence.permits().is_some();
    if !fences.iter().any(|(_, fenced)| has(fenced)) {
        return;
    }
    for (at, &(route, fenced)) in fences.iter().enumerate() {
        let above = fences[..=at].iter().filter(|(_, above)| has(fenced) || has(above));
        let first = above
            .filter_map(|&(other, above)| compare_fences(other, &above.fence, route, &fenced.fence))
            .next();
        first.into_iter().for_each(|fault| faults.push(fault.at(fenced.placed)));
    }
}

fn compare_fences(other: &str, above: &FenceRule, route: &str, fence: &FenceRule) -> Option<Diagnostic> {
    // Fences with a foreign layout are skipped: their different placement was reported already.
    let foreign =
        |fence: &FenceRule| fence.locks().any(|(_, lock)| matches!(lock, LockPlacement::Foreign { .. }));
    let share = above.templates().any(|one| fence.templates().any(|two| may_give_same_key(one, two)));
    if share && above.permits() != fence.permits() && !foreign(above) && !foreign(fence) {
        let message = format!(
            "routes `{other}` and `{route}` can lock one key, but let different numbers of requests hold it at once: {} and {}",
            permits_text(above),
            permits_text(fence)
        );
        let remedy = "write the same `permits` on both, or give their keys different first words";
        return Some(Diagnostic::new(DiagnosticCode::UnlikePermits, message).with_remedy(remedy));
    }
    if may_equal_permit(above, fence) || may_equal_permit(fence, above) {
        let message =
            format!("a key of routes `{other}` and `{route}` can be that of a permit, `key#0` or the like");
        let remedy = "write another character than `#` in the key, or another key beside the `permits`";
        return Some(Diagnostic::new(DiagnosticCode::PermitKey, message).with_remedy(remedy));
    }
    None
}

fn permits_text(fence: &FenceRule) -> String {
    fence.permits().map_or_else(|| "1".to_owned(), |permits| permits.to_string())
}

/// Whether a key of one fence could have the same text as a permit of the other. Both would then share one
/// watermark.
fn may_equal_permit(key: &FenceRule, of: &FenceRule) -> bool {
    of.permits().is_some()
        && of.templates().any(|of| {
            let permits = of.permit_glob();
            key.templates().any(|key| key.glob().relation_to(&permits) == GlobRelation::Overlapping)
        })
}
