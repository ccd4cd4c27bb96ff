//! Finds routes that would lock the same key at two places, or make nodes of two layouts at the same path.

use super::{diagnostics::Diagnostics, fence::ParsedFence};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    key::{GlobRelation, KeyTemplate},
    plan::{FenceRule, LockPlacement},
};

/// Compares each pair of fences of which at least one has a foreign layout; there are few such fences. `fences`: with
/// the names of their routes, in the order of the file.
pub(super) fn check_layout_conflicts<'r>(fences: &[(&'r str, &'r ParsedFence)], faults: &Diagnostics) {
    let foreign = |placing: &LockPlacement| matches!(placing, LockPlacement::Foreign { .. });
    let is_foreign = |fenced: &ParsedFence| fenced.fence.locks().any(|(_, placing)| foreign(placing));
    if !fences.iter().any(|(_, fenced)| is_foreign(fenced)) {
        return;
    }
    for (at, &(route, fenced)) in fences.iter().enumerate() {
        let above = fences[..at].iter().filter(|(_, above)| is_foreign(fenced) || is_foreign(above));
        let first = above
            .filter_map(|&(other, above)| compare_fences(other, &above.fence, route, &fenced.fence))
            .next();
        first.into_iter().for_each(|fault| faults.push(fault.at(fenced.placed)));
    }
}

fn compare_fences(other: &str, above: &FenceRule, route: &str, fence: &FenceRule) -> Option<Diagnostic> {
    let share = above.templates().any(|one| fence.templates().any(|two| may_give_same_key(one, two)));
    if share && !same_placement(above, fence) {
        let message = format!("routes `{other}` and `{route}` can lock one key at two places");
        let remedy =
            "write the same `layout` and `lock_path` on both, or give their keys different first words";
        return Some(Diagnostic::new(DiagnosticCode::UnlikeLayout, message).with_remedy(remedy));
    }
    above
        .locks()
        .find_map(|(_, one)| fence.locks().find_map(|(_, two)| compare_placements(other, one, route, two)))
}

/// Compares one lock of one fence with one lock of the other.
fn compare_placements(
    other: &str,
    above: &LockPlacement,
    route: &str,
    placing: &LockPlacement,
) -> Option<Diagnostic> {
    let (
        LockPlacement::Foreign { layout: one, path: here },
        LockPlacement::Foreign { layout: two, path: there },
    ) = (above, placing)
    else {
        return None;
    };
    match here.glob().relation_to(&there.glob()) {
        GlobRelation::Overlapping if one != two => {
            let one = one.as_str();
            let two = two.as_str();
            let message = format!(
                "routes `{other}` and `{route}` can make nodes of two layouts at one lock path: `{one}` and `{two}`"
            );
            let remedy = "write the layout of the programs that have their locks there on both";
            Some(Diagnostic::new(DiagnosticCode::UnlikeLayout, message).with_remedy(remedy))
        }
        GlobRelation::Nested => {
            let message = format!(
                "of routes `{other}` and `{route}` the lock path of one can lie below that of the other"
            );
            let remedy = "write lock paths that lie side by side";
            Some(Diagnostic::new(DiagnosticCode::NestedPath, message).with_remedy(remedy))
        }
        GlobRelation::Disjoint | GlobRelation::Overlapping => None,
    }
}

/// Whether some values give the same key by both templates.
pub(super) fn may_give_same_key(one: &KeyTemplate, two: &KeyTemplate) -> bool {
    one.glob().relation_to(&two.glob()) == GlobRelation::Overlapping
}

/// Whether every key that both fences can give has the same placement. Values are identified by their position in the
/// key, so only templates of the same shape can be compared.
///
/// For migrated locks one common lock is enough, because its holders exclude each other.
fn same_placement(one: &FenceRule, two: &FenceRule) -> bool {
    if one.former.is_some() || two.former.is_some() {
        let like = |(key, placing): (&KeyTemplate, &LockPlacement)| {
            two.locks().any(|(other, place)| key.shape() == other.shape() && placing == place)
        };
        return one.locks().any(like);
    }
    let shape = |fence: &FenceRule| fence.keys.iter().map(|key| key.shape()).collect::<Vec<_>>();
    one.placing == two.placing && shape(one) == shape(two)
}
