//! Answers the challenge with which another gateway checks, when it connects, that this one has the peer secret. The secret
//! is not shown.

use fencegate_peers::header;
use fencegate_zookeeper::peer_secret::PeerSecret;

use crate::{frontend::RawRequest, handler::ShortCircuit};

/// Proves to a gateway that connects that this process has the peer secret. Other listeners do not answer: they may
/// belong to another installation, which would serve forwarded requests under other locks.
pub(crate) fn answer_challenge(
    secret: &Option<PeerSecret>,
    request: RawRequest,
) -> Result<RawRequest, ShortCircuit> {
    let ours = secret.as_ref().filter(|_| request.arrival.from_gateways);
    match ours.and_then(|secret| header::challenge_response(&request.http, secret)) {
        Some(reply) => Err(ShortCircuit::with_reply(reply)),
        None => Ok(request),
    }
}
