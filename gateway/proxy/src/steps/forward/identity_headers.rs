//! The fields in which the service learns of the client, and those that are kept from it.

use std::fmt::Write as _;

use fencegate_policies::plan::Upstream;
use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, HeaderName, HeaderValue},
};

use crate::request_context::VerifiedClientIdentity;

/// Writes what was verified of the client into the fields of the upstream, and takes its token away where the policy keeps
/// that from the service: only a token that was verified, because any other is not for the gateway.
///
/// Fields of these names were removed from the request when it came.
pub fn write_identity_headers(
    headers: &mut HeaderMap,
    identity: Option<&VerifiedClientIdentity>,
    upstream: &Upstream,
) {
    let Some(identity) = identity else { return };
    let fields = &upstream.identity_fields;
    if let (Some(field), Some(name)) = (&fields.client_name, &identity.client_name)
        // The name is printable ASCII.
        && let Ok(value) = HeaderValue::from_str(name.as_str())
    {
        headers.insert(header_name(field), value);
    }
    let Some(token) = &identity.token else { return };
    for (field, claim) in &fields.claims {
        if let Some(text) = token.claims.text(claim) {
            headers.insert(header_name(field), encode_claim(text));
        }
    }
    if !token.forward {
        headers.remove(AUTHORIZATION);
    }
}

fn header_name(name: &str) -> HeaderName {
    HeaderName::from_bytes(name.as_bytes()).expect("the plan holds field names")
}

/// Visible ASCII without `%` stands as it is, and every other byte percent-encoded: servers read other bytes differently, and
/// two texts never have one value.
fn encode_claim(text: &str) -> HeaderValue {
    let mut value = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            value.push(char::from(byte));
        } else {
            write!(value, "%{byte:02X}").expect("a text takes all that is written");
        }
    }
    HeaderValue::try_from(value).expect("visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim is written in visible ASCII, whatever is in it, and no two in one way.
    #[test]
    fn claim_is_visible_ascii() {
        for (text, written) in [
            ("till-7", "till-7"),
            ("a b", "a%20b"),
            ("100%", "100%25"),
            ("100%25", "100%2525"),
            ("caf\u{e9}", "caf%C3%A9"),
            ("a\r\nX-Admin: 1", "a%0D%0AX-Admin:%201"),
            ("", ""),
        ] {
            assert_eq!(encode_claim(text), written, "{text:?}");
        }
    }
}
