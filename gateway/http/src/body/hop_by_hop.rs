//! Removes fields that must not pass a proxy: hop-by-hop fields, and every spelling of the fields that only this
//! proxy writes.

use fencegate_policies::plan::{ReservedHeaderNames, is_spelling_of, same_field, starts_with_spelling};
use hyper::{
    HeaderMap,
    header::{CONNECTION, HeaderName},
};
use smallvec::SmallVec;

/// The HTTP library's own bound on the number of fields in a head. With any other bound it allocates and fills two
/// lists of that length for each head, which costs more than reading the head (hyper 1.12, `Server::parse` and
/// `Client::parse` in `proto/h1/role.rs`).
pub const LIBRARYS_MOST: usize = 100;

/// Removes the hop-by-hop fields (RFC 9110, 7.6.1), both the known ones and those that `Connection` nominates, and the
/// proxy's own fields, which it returns.
pub fn strip_hop_by_hop(headers: &mut HeaderMap, ours: &ReservedHeaderNames) -> HeaderMap {
    let is_ours = |name: &HeaderName| ours.is_reserved_header(name.as_str());
    // The loop runs over the fields of the head and not over the known names, because most heads have few fields.
    let mut named = SmallVec::<[HeaderName; USUAL]>::new();
    for name in headers.keys() {
        if is_hop_by_hop(name.as_str()) || is_ours(name) {
            named.push(name.clone());
        }
    }
    let mut presented = HeaderMap::new();
    for name in named.iter().filter(|name| is_ours(name)) {
        for value in headers.get_all(name) {
            presented.append(name.clone(), value.clone());
        }
    }
    if named.contains(&CONNECTION) {
        for name in connection_nominated(headers) {
            headers.remove(name);
        }
    }
    for name in &named {
        headers.remove(name);
    }
    presented
}

/// The number of fields that are removed from a usual head.
const USUAL: usize = 4;

/// The fields that `Connection` nominates, in any of its lines.
fn connection_nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let names = lines.flat_map(|line| line.split(',')).map(str::trim);
    // Most `Connection` lines nominate only `keep-alive`, which is removed anyway, so it is not looked up again.
    let names = names.filter(|name| !name.eq_ignore_ascii_case("keep-alive"));
    let names = names.filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok());
    names.filter(|name| !identifies_client(name.as_str())).collect()
}

/// True if a field of this name, in any spelling, describes the client or the route of a request to the next server. A
/// client must not be able to remove by a nomination what a trusted proxy writes there (CVE-2022-31813).
pub fn identifies_client(name: &str) -> bool {
    const NAMES: [&str; 7] = [
        "forwarded",
        "x-real-ip",
        "x-client-ip",
        "client-ip",
        "true-client-ip",
        "x-cluster-client-ip",
        "x-original-forwarded-for",
    ];
    // A quick check by the first letter: most fields begin with another one.
    if !matches!(name.as_bytes().first(), Some(b'f' | b'x' | b'c' | b't')) {
        return false;
    }
    starts_with_spelling(name, "x-forwarded") || NAMES.iter().any(|known| is_spelling_of(name, known))
}

/// True for a hop-by-hop field and its look-alikes: some servers read `Transfer_Encoding` as the field itself, and
/// take the length of the body from `Content_Length`.
fn is_hop_by_hop(name: &str) -> bool {
    // Every spelling of a field begins with the field's own letter, so other letters end the check.
    if !matches!(name.as_bytes().first(), Some(b'c' | b'k' | b'p' | b't' | b'u' | b'h')) {
        return false;
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if name.bytes().all(is_plain) {
        return HOP_BY_HOP.contains(&name);
    }
    HOP_BY_HOP.iter().chain(&["content-length"]).any(|other| same_field(name, other))
}

static HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    /// Every spelling of a reserved field is removed, and all other fields stay.
    #[test]
    fn reserved_field_spellings_are_all_stripped() {
        let mut headers = HeaderMap::new();
        for name in [
            "Fencing-Token",
            "fencing_token",
            "FENCING_Number",
            "fencing-anything",
            "Fencing.Token",
            "fencing!key",
            "x_fence",
            "X-Fence",
            "X~Fence",
        ] {
            let name: HeaderName = name.parse().expect("a field name");
            headers.append(name, HeaderValue::from_static("v1-0"));
        }
        headers.append("x-fences", HeaderValue::from_static("stays"));
        headers.append("fenc", HeaderValue::from_static("stays"));
        strip_hop_by_hop(&mut headers, &ReservedHeaderNames::new(["X-Fence".to_owned()]));
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["fenc", "x-fences"]);
    }

    /// A field that looks like a hop-by-hop field or like the length is removed as well.
    #[test]
    fn lookalikes_of_hop_by_hop_fields_are_stripped() {
        let mut headers = HeaderMap::new();
        for name in
            ["Transfer_Encoding", "proxy.connection", "keep_alive", "Content_Length", "Content.Length"]
        {
            let name: HeaderName = name.parse().expect("a field name");
            headers.append(name, HeaderValue::from_static("1"));
        }
        for name in ["content-length", "content_type", "x_custom", "transfer_encodings"] {
            headers.append(name, HeaderValue::from_static("stays"));
        }
        strip_hop_by_hop(&mut headers, &ReservedHeaderNames::default());
        let left: Vec<_> = headers.iter().map(|(_, value)| value).collect();
        assert_eq!(left, ["stays"; 4]);
    }

    /// A field that any `Connection` line nominates is removed.
    #[test]
    fn every_connection_line_nominates() {
        let mut headers = HeaderMap::new();
        headers.append(CONNECTION, HeaderValue::from_static("close, X-One"));
        headers.append(CONNECTION, HeaderValue::from_static("x-two"));
        headers.append("x-one", HeaderValue::from_static("1"));
        headers.append("x-two", HeaderValue::from_static("2"));
        headers.append("x-three", HeaderValue::from_static("3"));
        strip_hop_by_hop(&mut headers, &ReservedHeaderNames::default());
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-three"]);
    }

    /// A nomination in `Connection` does not remove a field that names the client.
    #[test]
    fn nomination_keeps_client_address_fields() {
        let mut headers = HeaderMap::new();
        headers.append(CONNECTION, HeaderValue::from_static("X-Forwarded-For, forwarded, X-Real-IP, x-one"));
        for name in ["x-forwarded-for", "forwarded", "x-real-ip", "x-one"] {
            headers.append(name, HeaderValue::from_static("1"));
        }
        strip_hop_by_hop(&mut headers, &ReservedHeaderNames::default());
        let mut left = headers.keys().map(HeaderName::as_str).collect::<Vec<_>>();
        left.sort_unstable();
        assert_eq!(left, ["forwarded", "x-forwarded-for", "x-real-ip"]);
    }
}
