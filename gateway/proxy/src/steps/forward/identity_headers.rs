//! Writes the fields in which the service learns the identity of the client, and removes those that it must not get.

use std::fmt::Write as _;

use fencegate_policies::plan::Upstream;
use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, HeaderName, HeaderValue},
};

use crate::request_context::VerifiedClientIdentity;

/// Writes the verified identity of the client into the fields that the upstream wants. Removes the client's token where
/// the policy keeps it from the service; a token that was not verified stays, because it is not for the gateway.
///
/// Fields of these names that the client sent were removed by an earlier step.
pub fn write_identity_headers(
    headers: &mut HeaderMap,
    identity: Option<&VerifiedClientIdentity>,
    upstream: &Upstream,
) {
    let Some(identity) = identity else { return };
    let fields = &upstream.identity_fields;
    if let (Some(field), Some(name)) = (&fields.client_name, &identity.client_name)
        // The conversion does not fail, because the name is printable ASCII.
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

/// Percent-encodes every byte but visible ASCII without `%`: servers read other bytes differently, and two texts must
/// never have the same value.
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

    /// A claim with any bytes is written in visible ASCII, and two different claims are never written alike.
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
