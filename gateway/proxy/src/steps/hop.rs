//! Adds the fields in which a proxy names itself, its client and its hops. The report of a peer about its own client
//! counts only if the peer is trusted.

use std::{net::IpAddr, rc::Rc, sync::Arc};

use fencegate_config::active_config::PipelineEntryGuard;
use fencegate_guard_client::{callback::CallbackTicket, ticket_issuer::TicketIssuer};
use fencegate_http::{
    body::{Body, hop_by_hop::identifies_client},
    connection_info::ConnectionInfo,
    header_list::{append, list_entries},
};
use fencegate_policies::{
    host::CanonicalHost, path::CanonicalPath, plan::CommonServingPlan, trusted_proxies::TrustedProxies,
};
use hyper::{
    HeaderMap, Request,
    header::{FORWARDED, HeaderName, HeaderValue},
};
use smallvec::SmallVec;

use crate::{
    handler::ShortCircuit,
    request_context::{RequestContext, RequestSource},
    steps::{callback_ticket, strip_headers::SanitizedRequest, validate_head::ValidatedRequest},
    via::ViaName,
};

/// The settings with which this process adds itself to a request's path.
#[derive(Clone)]
pub(crate) struct ProxyHopConfig {
    pub plan: Arc<CommonServingPlan>,
    /// The name of this process in `Via`, which no other process has.
    pub via: Rc<ViaName>,
    /// Verifies the tickets of services that call back. `None` where no route may be called back.
    pub tickets: Option<Arc<TicketIssuer>>,
}

pub(crate) fn add_hop_headers(
    hop: &ProxyHopConfig,
    request: SanitizedRequest,
) -> Result<IdentifiedRequest, ShortCircuit> {
    let SanitizedRequest { request, presented, forwarded } = request;
    let ValidatedRequest { mut http, context, arrival, entry, host, path } = request;
    // The ticket of the caller is read first, because the detection of loops needs it.
    let callback =
        hop.tickets.as_deref().and_then(|tickets| callback_ticket::presented_ticket(tickets, &presented));
    let lease = callback_ticket::presented_lease(&presented);
    let received = http.version();
    let headers = http.headers_mut();
    let mut hops = hop.via.parse_via_chain(headers);
    // A request that a service sends inside one of our dispatches passes this process a second time. It is no loop:
    // it takes no further lock of the same key, and the depth of calls is limited.
    let called = matches!(callback, Some(CallbackTicket::Valid(_)));
    let gateway = forwarded.is_some();
    if called || gateway {
        hops.looped = false;
    }
    let hops = hops.check_loop()?;
    let client = set_forwarded(headers, &arrival.peer, &hop.plan.listener.trusted, gateway);
    hop.via.add_via_entry(headers, received);
    // The name is kept, because the answer gets it when all answers are stamped.
    let via = hop.via.clone();
    let source = Rc::new(RequestSource { arrival, client, via, hops, forwarded, callback, lease });
    context.source.get_or_init(|| source.clone());
    Ok(IdentifiedRequest { http, context, entry, host, path, presented, source })
}

/// A request whose client is named, and that was not found to be in a loop.
pub struct IdentifiedRequest {
    pub http: Box<Request<Body>>,
    pub context: Rc<RequestContext>,
    /// Counts the request as one that has looked up the pipeline, until the request is counted under its plan.
    pub entry: Option<PipelineEntryGuard>,
    pub host: CanonicalHost,
    pub path: CanonicalPath,
    /// The removed fields that only a gateway may write, as in [`SanitizedRequest::presented`].
    pub presented: HeaderMap,
    pub source: Rc<RequestSource>,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Names the client to the upstream, and returns its address.
///
/// If `gateway`, the peer is a gateway of this installation, so its report of the hop before it counts. The report
/// of that hop counts only if that hop is a trusted proxy.
fn set_forwarded(
    headers: &mut HeaderMap,
    peer: &ConnectionInfo,
    trusted: &TrustedProxies,
    gateway: bool,
) -> IpAddr {
    let address = peer.ip();
    let client = if gateway || trusted.contains(address) {
        remove_lookalike_client_fields(headers);
        let name = X_FORWARDED_FOR;
        // An entry that is not text is no address, but it still counts as an entry.
        let mut named = list_entries(headers, &name).map(|entry| str::from_utf8(entry).unwrap_or_default());
        let before = if gateway { named.next_back().and_then(|before| before.parse().ok()) } else { None };
        let client = trusted.client_address(before.unwrap_or(address), named);
        if headers.contains_key(FORWARDED) {
            append(headers, FORWARDED, &header_value(format!("for={}", forwarded_node(address))));
        }
        client
    } else {
        remove_client_fields(headers);
        address
    };
    append(headers, X_FORWARDED_FOR, peer.ip_header());
    headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static(peer.scheme()));
    client
}

fn header_value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("made of addresses")
}

/// An address in `Forwarded` (RFC 7239, 6).
fn forwarded_node(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    }
}

/// Removes the fields that name a client, in every spelling that some server takes for such a field.
fn remove_client_fields(headers: &mut HeaderMap) {
    remove_headers_where(headers, identifies_client);
}

/// Removes odd spellings of the fields that name a client. A trusted proxy writes the usual names. Another spelling
/// comes from the proxy's client, and CGI, WSGI and Rack take it for the usual field.
fn remove_lookalike_client_fields(headers: &mut HeaderMap) {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    remove_headers_where(headers, |name| identifies_client(name) && !name.bytes().all(is_usual));
}

fn remove_headers_where(headers: &mut HeaderMap, is_unwanted: impl Fn(&str) -> bool) {
    let names: SmallVec<[HeaderName; 4]> =
        headers.keys().filter(|name| is_unwanted(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_process::randomness::{Guid, SystemRandomness};
    use fencegate_refusal::RefusalReason;
    use hyper::{Version, header::VIA};

    fn fields(fields: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            let name: HeaderName = name.parse().expect("a name");
            map.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        map
    }

    fn text(headers: &HeaderMap, name: &str) -> String {
        let values = headers.get_all(name).iter().map(|value| value.to_str().expect("text"));
        values.collect::<Vec<_>>().join(" | ")
    }

    fn peer(address: &str) -> ConnectionInfo {
        let local = "127.0.0.1:80".parse().expect("an address");
        ConnectionInfo::new(format!("{address}:4711").parse().expect("an address"), local)
    }

    /// The forwarding fields of an untrusted sender are removed, and the sender counts as the client.
    #[test]
    fn untrusted_sender_names_no_client() {
        let mut headers = fields(&[
            ("X-Forwarded-For", "198.51.100.7"),
            ("x_forwarded_for", "198.51.100.7"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Anything", "1"),
            ("Forwarded", "for=198.51.100.7"),
            ("X-Real_IP", "198.51.100.7"),
            ("X-Request-Id", "stays"),
            ("From", "stays"),
        ]);
        let client = set_forwarded(&mut headers, &peer("192.0.2.1"), &TrustedProxies::default(), false);
        assert_eq!(client, "192.0.2.1".parse::<IpAddr>().expect("an address"));
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["from", "x-forwarded-for", "x-forwarded-proto", "x-request-id"]);
        assert_eq!(
            (text(&headers, "x-forwarded-for"), text(&headers, "x-forwarded-proto")),
            ("192.0.2.1".into(), "http".into())
        );
    }

    /// A trusted sender names its client, and its own address is appended to the list.
    #[test]
    fn trusted_sender_names_client() {
        let mut headers = fields(&[
            ("X-Forwarded-For", "203.0.113.9"),
            ("X-Forwarded-For", "198.51.100.7"),
            ("X-Forwarded-Proto", "https"),
            ("Forwarded", "for=198.51.100.7;proto=https"),
            ("X_Forwarded_For", "192.0.2.7"),
            ("X-Real.IP", "192.0.2.7"),
        ]);
        let trusted = TrustedProxies::new(vec!["192.0.2.0/24".parse().expect("a network")]);
        let client = set_forwarded(&mut headers, &peer("192.0.2.1"), &trusted, false);
        assert_eq!(client, "198.51.100.7".parse::<IpAddr>().expect("an address"));
        assert_eq!(text(&headers, "x-forwarded-for"), "203.0.113.9, 198.51.100.7, 192.0.2.1");
        assert_eq!(text(&headers, "x-forwarded-proto"), "https");
        assert_eq!(text(&headers, "forwarded"), "for=198.51.100.7;proto=https, for=192.0.2.1");
        assert!(
            !headers.values().any(|value| value == "192.0.2.7"),
            "a look-alike of its client: {headers:?}"
        );
    }

    /// A forwarding gateway names the client that it serves, and trusted proxies in front of it are skipped.
    #[test]
    fn forwarding_gateway_names_its_client() {
        for (trusted, client) in [(&[][..], "203.0.113.9"), (&["203.0.113.0/24"][..], "198.51.100.7")] {
            let trusted =
                TrustedProxies::new(trusted.iter().map(|text| text.parse().expect("a network")).collect());
            let mut headers = fields(&[("X-Forwarded-For", "198.51.100.7, 203.0.113.9")]);
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("https"));
            let named = set_forwarded(&mut headers, &peer("192.0.2.1"), &trusted, true);
            assert_eq!(named.to_string(), client);
            assert_eq!(text(&headers, "x-forwarded-for"), "198.51.100.7, 203.0.113.9, 192.0.2.1");
            assert_eq!(text(&headers, "x-forwarded-proto"), "https");
        }
    }

    /// Malformed bytes in the fields hide neither a hop nor a client.
    #[test]
    fn malformed_bytes_hide_no_hop() {
        let name = ViaName::new(Guid::new(&SystemRandomness));
        let odd = || HeaderValue::from_bytes(b"\x80").expect("a value");
        let mut headers = HeaderMap::new();
        headers.insert(VIA, odd());
        assert_eq!(name.parse_via_chain(&headers).check_loop().expect("not seen"), 1);
        name.add_via_entry(&mut headers, Version::HTTP_11);
        assert_eq!(
            name.parse_via_chain(&headers).check_loop().expect_err("seen").reason,
            RefusalReason::Loop
        );

        let trusted = TrustedProxies::new(vec!["192.0.2.0/24".parse().expect("a network")]);
        let mut headers = HeaderMap::new();
        headers.insert(X_FORWARDED_FOR, odd());
        let ours = "192.0.2.1".parse::<IpAddr>().expect("an address");
        assert_eq!(set_forwarded(&mut headers, &peer("192.0.2.1"), &trusted, false), ours);
        // The gateway to which this request is forwarded gets one line, and finds the same client in it.
        assert_eq!(
            set_forwarded(&mut headers, &peer("198.51.100.1"), &TrustedProxies::default(), true),
            ours
        );
    }
}
