//! Accepts, on the listener for gateways, only requests with the peer secret of this process, and reads the metadata
//! that the other gateway sends with each request.

use fencegate_peers::header;
use fencegate_policies::{client_name::CertificateNameKind, plan::CommonServingPlan};
use fencegate_refusal::{Refusal, RefusalReason};
use fencegate_zookeeper::peer_secret::PeerSecret;

use super::strip_headers::SanitizedRequest;
use crate::handler::ShortCircuit;

/// Decides which requests of other gateways are believed.
#[derive(Debug, Clone)]
pub(crate) struct PeerVerifier {
    /// Our own secret, on the listener for gateways. On other listeners the field was removed unread.
    secret: Option<PeerSecret>,
    /// The kind of name by which the plan knows clients.
    client_name: Option<CertificateNameKind>,
}

impl PeerVerifier {
    pub(crate) fn new(secret: Option<PeerSecret>, plan: &CommonServingPlan) -> Self {
        Self { secret, client_name: plan.listener.tls.as_ref().and_then(|tls| tls.client_name) }
    }
}

/// # Errors
/// The request was not sent by a gateway, or names its client by another kind of name than this gateway does: the rules here are
/// about other clients. The other gateway then serves it itself.
pub(crate) fn verify_peer(
    peers: &PeerVerifier,
    mut request: SanitizedRequest,
) -> Result<SanitizedRequest, ShortCircuit> {
    if request.request.arrival.from_gateways {
        let secret = peers.secret.as_ref();
        let forwarded = secret.and_then(|secret| header::verify(&request.presented, secret));
        let Some(forwarded) = forwarded else {
            return Err(Refusal::new(RefusalReason::PeerForbidden, "without the pass of this gateway").into());
        };
        if forwarded.client_name.as_ref().is_some_and(|name| Some(name.kind()) != peers.client_name) {
            let detail = "its client is named by another kind of name than here";
            return Err(Refusal::new(RefusalReason::PeerForbidden, detail).into());
        }
        request.forwarded = Some(forwarded);
    }
    Ok(request)
}
