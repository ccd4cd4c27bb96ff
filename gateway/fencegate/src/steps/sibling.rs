//! Lets in on the listener for gateways who shows the pass of this process, and notes what it says of the request.
//! Who has just connected asks first whether we know that pass, without showing it.

use fencegate_lock::pass::Pass;

use super::hygiene::Clean;
use crate::{
    front::Arrived,
    refusal::{Reason, Refusal},
    siblings::field,
    step::Stops,
};

/// Answers who has connected, and means this process by the pass that it knows. On other listeners nobody is answered so:
/// what listens there may be of another installation, and would serve what is sent on under other locks.
pub fn prove(pass: &Option<Pass>, request: Arrived) -> Result<Arrived, Stops> {
    let ours = pass.as_ref().filter(|_| request.notes.of_gateways.get());
    match ours.and_then(|pass| field::proof(&request.http, pass)) {
        Some(reply) => Err(Stops::answered(reply)),
        None => Ok(request),
    }
}

/// `pass`: ours, where gateways are listened to. On other listeners the field is gone, and nobody has read it.
pub fn believe(pass: &Option<Pass>, request: Clean) -> Result<Clean, Stops> {
    let notes = &request.request.notes;
    if notes.of_gateways.get() {
        let known = pass.as_ref().and_then(|pass| field::believed(&request.presented, pass));
        let Some(forwarded) = known else {
            return Err(Refusal::new(Reason::PeerForbidden, "without the pass of this gateway").into());
        };
        notes.forwarded.get_or_init(|| forwarded);
    }
    Ok(request)
}
