//! Finds routes that can lock the same key and have different delays.

use std::time::Duration;

use super::{diagnostics::Diagnostics, fence::ParsedFence, scalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    key::{GlobRelation, KeyTemplate},
    plan::FenceRule,
};

/// Reports routes that can lock the same key and have different delays. A holder without a delay leaves no record,
/// so the next holder would not wait. A different length is refused as well, because a gateway can use one held lock
/// for requests of both routes.
pub(super) fn check_delay_conflicts(fences: &[(&str, &ParsedFence, Option<Duration>)], faults: &Diagnostics) {
    let Some((.., usual)) = fences.first() else { return };
    if fences.iter().all(|(.., delay)| delay == usual) {
        return;
    }
    for (at, (route, fenced, delay)) in fences.iter().enumerate() {
        let mut above = fences[..at].iter().filter(|(.., known)| known != delay);
        let Some((other, _, known)) = above.find(|(_, above, _)| may_share_key(&above.fence, &fenced.fence))
        else {
            continue;
        };
        let how = |delay: Option<Duration>| match delay {
            Some(delay) => format!("a delay of {}", scalar::format_duration(delay)),
            None => "no delay".to_owned(),
        };
        let message = format!(
            "routes `{other}` and `{route}` can lock one key, with {} and with {}",
            how(*known),
            how(*delay)
        );
        let remedy = "write `fencing: delay` and the same `delay` on both upstreams, or give their keys different first words";
        faults.push(
            Diagnostic::new(DiagnosticCode::UnlikeDelay, message).at(fenced.placed).with_remedy(remedy),
        );
    }
}

fn may_share_key(one: &FenceRule, other: &FenceRule) -> bool {
    let meet = |one: &KeyTemplate, other: &KeyTemplate| {
        one.glob().relation_to(&other.glob()) == GlobRelation::Overlapping
    };
    one.keys.iter().any(|key| other.keys.iter().any(|theirs| meet(key, theirs)))
}
