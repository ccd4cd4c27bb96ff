//! Accepts, on the listener for gateways, only requests with the peer secret of this process, and reads the metadata
//! that the other gateway sends with each request.

use fencegate_peers::header;
use fencegate_policies::{client_name::CertificateNameKind, plan::CommonServingPlan};
use fencegate_refusal::{Refusal, RefusalReason};
use fencegate_zookeeper::peer_secret::PeerSecret;

use super::strip_headers::SanitizedRequest;
use crate::handler::ShortCircuit;

/// Decides which requests on the listener for gateways were sent by a gateway.
#[derive(Debug, Clone)]
pub(crate) struct PeerVerifier {
    /// The peer secret of this process. `None` where there is no listener for gateways.
    secret: Option<PeerSecret>,
    /// The kind of name by which the plan identifies clients.
    client_name: Option<CertificateNameKind>,
}

impl PeerVerifier {
    pub(crate) fn new(secret: Option<PeerSecret>, plan: &CommonServingPlan) -> Self {
        Self { secret, client_name: plan.listener.tls.as_ref().and_then(|tls| tls.client_name) }
    }
}

/// # Errors
/// Returns an error if the request was not sent by a gateway, or if it names its client by another kind of name than
/// this gateway uses: the rules of this gateway would then be about other clients. The other gateway serves such a
/// request itself.
pub(crate) fn verify_peer(
    peers: &PeerVerifier,
    mut request: SanitizedRequest,
) -> Result<SanitizedRequest, ShortCircuit> {
    if request.request.arrival.from_gateways {
        let secret = peers.secret.as_ref();
        let forwarded = secret.and_then(|secret| header::parse_and_verify(&request.presented, secret));
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
