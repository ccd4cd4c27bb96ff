//! Answers the challenge by which another gateway checks, when it connects, that this process has the peer secret. The
//! secret itself is not sent.

use fencegate_peers::header;
use fencegate_zookeeper::peer_secret::PeerSecret;

use crate::{frontend::RawRequest, handler::ShortCircuit};

/// Proves to a gateway that connects that this process has the peer secret. Only the listener for gateways answers:
/// another listener may belong to another installation, which would serve forwarded requests under other locks.
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
