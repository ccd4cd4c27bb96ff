//! Accepts, on the listener for gateways, only requests with the peer secret of this process, and reads the metadata
//! that the other gateway sends with each request.

use fencegate_peers::header;
use fencegate_refusal::{Refusal, RefusalReason};
use fencegate_zookeeper::peer_secret::PeerSecret;

use super::strip_headers::SanitizedRequest;
use crate::handler::ShortCircuit;

/// `secret` is our own secret, on the listener for gateways. On other listeners the field was removed unread.
pub(crate) fn verify_peer(
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
