//! Requests that are not served where they came in: another gateway keeps their key.

use fencegate_policies::plan::{Enforce, Fence, Hold, Mode};
use tokio::time::Instant;

use crate::{
    lock::slot::Waits,
    refusal::{Reason, Refusal},
    stage::{Fenced, Keyed},
};

/// Where a request may wait for its key.
///
/// # Errors
/// Another gateway has sent it here, and by our plan it is not about that one key alone.
pub(super) fn waits(request: &Keyed) -> Result<Waits, Refusal> {
    let Some(forwarded) = request.notes.forwarded.get() else { return Ok(Waits::Here) };
    let agrees = |fenced: &Fenced| {
        let one = matches!(&*fenced.keys, [key] if key.as_str() == forwarded.key);
        one && is_kept(fenced, fenced.fence(&request.plan))
    };
    match &request.fenced {
        Some(fenced) if agrees(fenced) => Ok(Waits::AtHolder),
        _ => Err(Refusal::new(Reason::NotHolder, "by our plan it does not wait for that key alone")),
    }
}

/// It waits for one key, alone, that is kept for others, and goes nowhere without it.
fn is_kept(fenced: &Fenced, fence: &Fence) -> bool {
    let cached = matches!(fence.hold, Hold::Cached(_)) && fenced.keys.len() == 1;
    cached && fenced.mode == Mode::Exclusive && fence.enforce == Enforce::Refuse
}

/// Where another gateway has sent it: not longer than it would wait there.
pub(super) fn deadline(request: &Keyed, ours: Instant) -> Instant {
    request.notes.forwarded.get().map_or(ours, |forwarded| ours.min(forwarded.until))
}
