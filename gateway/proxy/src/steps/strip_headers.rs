//! Removes the fields of a request that a proxy must not pass on, and writes its host in one spelling.

use std::sync::Arc;

use fencegate_http::body::hop_by_hop::strip_hop_by_hop;
use fencegate_http_client::upstream::client_connection::AcceptsTrailers;
use fencegate_peers::PeerForwardHeader;
use fencegate_policies::plan::CommonServingPlan;
use hyper::{
    HeaderMap,
    header::{self, HeaderValue},
};

use crate::{
    handler::ShortCircuit,
    steps::{upgrade::ClientUpgradeProtocols, validate_head::ValidatedRequest},
};

/// A request without hop-by-hop fields, and without fields that only the gateway may write.
pub struct SanitizedRequest {
    pub request: ValidatedRequest,
    /// The removed fields that only a gateway may write. They are unverified claims of the sender.
    pub presented: HeaderMap,
    /// The report of the gateway that has forwarded the request, once that gateway is verified.
    pub forwarded: Option<PeerForwardHeader>,
}

pub(crate) fn strip_headers(
    plan: &Arc<CommonServingPlan>,
    mut request: ValidatedRequest,
) -> Result<SanitizedRequest, ShortCircuit> {
    if takes_trailers(request.http.headers()) {
        request.http.extensions_mut().insert(AcceptsTrailers);
    }
    if let Some(wanted) = ClientUpgradeProtocols::from_request(&request.http) {
        request.http.extensions_mut().insert(wanted);
    }
    let headers = request.http.headers_mut();
    // This runs before our own fields are added: a client could name one of ours in `Connection` to have it
    // removed.
    let presented = strip_hop_by_hop(headers, &plan.fields);
    headers.remove(header::TRAILER);
    headers.remove(header::EXPECT);
    // The upstream gets the host in its canonical spelling. An absolute target is forwarded without its host,
    // so the host is written into the field.
    let host = request.host.as_str();
    if headers.get(header::HOST).is_none_or(|value| value != host) {
        let host = HeaderValue::from_str(host).expect("a canonical host is visible ASCII");
        headers.insert(header::HOST, host);
    }
    Ok(SanitizedRequest { request, presented, forwarded: None })
}

/// True if the client accepts trailers. `TE` belongs to one hop and was removed, so a later step writes it
/// anew for an upstream that can send trailers.
fn takes_trailers(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::TE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}
