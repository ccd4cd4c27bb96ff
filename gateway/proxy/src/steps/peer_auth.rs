//! Accepts, on the listener for gateways, only requests with the peer secret of this process, and reads the metadata
//! that the other gateway sends with each request. A gateway that has just connected first sends a challenge to check
//! that we have that secret, without showing it.

use fencegate_peers::header;
use fencegate_refusal::{Refusal, RefusalReason};
use fencegate_zookeeper::peer_secret::PeerSecret;

use super::strip_headers::SanitizedRequest;
use crate::{frontend::RawRequest, handler::ShortCircuit};

/// Proves to a gateway that connects that this process has the peer secret. Other listeners do not answer: they may
/// belong to another installation, which would serve forwarded requests under other locks.
pub fn answer_challenge(
    secret: &Option<PeerSecret>,
    request: RawRequest,
) -> Result<RawRequest, ShortCircuit> {
    let ours = secret.as_ref().filter(|_| request.arrival.from_gateways);
    match ours.and_then(|secret| header::challenge_response(&request.http, secret)) {
        Some(reply) => Err(ShortCircuit::with_reply(reply)),
        None => Ok(request),
    }
}

/// `secret` is our own secret, on the listener for gateways. On other listeners the field was removed unread.
pub fn verify_peer(
    secret: &Option<PeerSecret>,
    mut request: SanitizedRequest,
) -> Result<SanitizedRequest, ShortCircuit> {
    if request.request.arrival.from_gateways {
        request.forwarded = secret.as_ref().and_then(|secret| header::verify(&request.presented, secret));
        if request.forwarded.is_none() {
            return Err(Refusal::new(RefusalReason::PeerForbidden, "without the pass of this gateway").into());
        }
    }
    Ok(request)
}
