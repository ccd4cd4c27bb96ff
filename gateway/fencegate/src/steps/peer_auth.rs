//! Lets in, on the listener for gateways, only requests with the pass of this process, and reads what the other
//! gateway says about each request. A gateway that has just connected asks first whether we know that pass, without
//! showing it.

use fencegate_lock::peer_secret::PeerSecret;

use super::strip_headers::SanitizedRequest;
use crate::{
    frontend::RawRequest,
    handler::ShortCircuit,
    peers::header,
    refusal::{Reason, Refusal},
};

/// Proves to a gateway that connects that this process knows the pass. Other listeners do not answer: they may belong
/// to another installation, which would serve forwarded requests under other locks.
pub fn answer_challenge(pass: &Option<PeerSecret>, request: RawRequest) -> Result<RawRequest, ShortCircuit> {
    let ours = pass.as_ref().filter(|_| request.notes.of_gateways.get());
    match ours.and_then(|pass| header::challenge_response(&request.http, pass)) {
        Some(reply) => Err(ShortCircuit::with_reply(reply)),
        None => Ok(request),
    }
}

/// `pass` is our own, on the listener for gateways. On other listeners the field was removed unread.
pub fn verify_peer(
    pass: &Option<PeerSecret>,
    request: SanitizedRequest,
) -> Result<SanitizedRequest, ShortCircuit> {
    let notes = &request.request.notes;
    if notes.of_gateways.get() {
        let known = pass.as_ref().and_then(|pass| header::verify(&request.presented, pass));
        let Some(forwarded) = known else {
            return Err(Refusal::new(Reason::PeerForbidden, "without the pass of this gateway").into());
        };
        notes.forwarded.get_or_init(|| forwarded);
    }
    Ok(request)
}
