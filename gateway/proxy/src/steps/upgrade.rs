//! Decides which requests may switch to another protocol. A protocol that a client requests passes only if its route
//! lists it.

use fencegate_policies::plan::Route;
use hyper::{
    HeaderMap, Request, Response, Version,
    body::Body as _,
    header::{CONNECTION, HeaderValue, UPGRADE},
    upgrade::OnUpgrade,
};

use fencegate_http::body::Body;

/// The protocols that a client requests, the preferred one first. The field is removed from the request with all
/// other hop-by-hop fields, and kept here.
#[derive(Debug, Clone)]
pub struct ClientUpgradeProtocols(HeaderValue);

/// The protocol that is requested from an upstream.
#[derive(Debug, Clone)]
pub struct UpstreamUpgradeRequest {
    protocol: HeaderValue,
}

impl ClientUpgradeProtocols {
    /// Reads the protocols of a request in HTTP/1.1 with one `Upgrade` field that `Connection` names (RFC 9110,
    /// 7.8); `None` for any other request.
    pub fn from_request(http: &Request<Body>) -> Option<Self> {
        let mut protocols = http.headers().get_all(UPGRADE).iter();
        let protocol = protocols.next()?;
        let more = protocols.next();
        let one = more.is_none() && http.version() == Version::HTTP_11 && names_upgrade(http.headers());
        one.then(|| Self(protocol.clone()))
    }
}

fn names_upgrade(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|name| name.trim().eq_ignore_ascii_case("upgrade"))
}

/// Requests the protocol from the upstream, if the route allows it and nothing prevents it.
pub fn request_upgrade(http: &mut Request<Body>, route: Option<&Route>) -> Option<UpstreamUpgradeRequest> {
    let ClientUpgradeProtocols(protocol) = http.extensions_mut().remove()?;
    // Without this extension the HTTP library cannot hand over the stream of the client, so there is no switch.
    http.extensions_mut().remove::<OnUpgrade>()?;
    let allowed = &route?.upgrade;
    let may_pass = |named: &&str| allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(named));
    // Only the first permitted protocol is requested, so that the upstream cannot choose another one.
    let chosen = protocol.to_str().ok()?.split(',').map(str::trim).find(may_pass)?;
    let protocol = HeaderValue::from_str(chosen).ok()?;
    // A request with a body cannot switch: the body would stand between the head and the bytes of the new protocol.
    if !http.body().is_end_stream() {
        return None;
    }
    set_upgrade_headers(http.headers_mut(), &protocol);
    Some(UpstreamUpgradeRequest { protocol })
}

fn set_upgrade_headers(headers: &mut HeaderMap, protocol: &HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol.clone());
}

impl UpstreamUpgradeRequest {
    /// True if the upstream has switched to the requested protocol.
    pub(crate) fn is_accepted<B>(&self, answer: &Response<B>) -> bool {
        let chosen = answer.headers().get(UPGRADE);
        chosen.is_some_and(|chosen| chosen.as_bytes().eq_ignore_ascii_case(self.protocol.as_bytes()))
    }

    /// Announces the switch to the client, after all hop-by-hop fields of the upstream were removed.
    pub(crate) fn write_upgrade_headers(&self, headers: &mut HeaderMap) {
        set_upgrade_headers(headers, &self.protocol);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An upgrade is read only from a request of HTTP/1.1 with one `Upgrade` field that `Connection` names.
    #[test]
    fn single_named_protocol_is_offered() {
        let offers = |fields: &[(&str, &str)], version| {
            let mut http = Request::builder().version(version);
            for (name, value) in fields {
                http = http.header(*name, *value);
            }
            ClientUpgradeProtocols::from_request(&http.body(Body::empty()).expect("a request")).is_some()
        };
        let good = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        assert!(offers(&good, Version::HTTP_11));
        assert!(!offers(&good, Version::HTTP_10));
        assert!(!offers(&good[..1], Version::HTTP_11));
        assert!(!offers(&good[1..], Version::HTTP_11));
        assert!(!offers(&[good[0], good[1], ("upgrade", "h2c")], Version::HTTP_11));
    }
}
