//! The header field between gateways: by a challenge a gateway checks that the other side has the peer secret, and a
//! forwarded request carries that secret.

use std::{sync::Arc, time::Duration};

use fencegate_http::body::{Body, Reply};
use fencegate_policies::{
    client_name::{CertificateNameKind, ClientName},
    hex,
};
use fencegate_protocol::headers::FENCING_FORWARDED;
use fencegate_zookeeper::peer_secret::{ChallengeNonce, PeerSecret};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Uri,
    header::{HOST, HeaderValue},
};
use tokio::time::Instant;

/// The metadata of a request that another gateway has forwarded to this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerForwardHeader {
    /// The name of the forwarding gateway.
    pub from: Arc<str>,
    /// The key that the forwarding gateway has derived from the request.
    pub key: String,
    /// The moment until which the forwarding gateway waits, counted from the arrival of the head.
    pub until: Instant,
    /// The digest of the identity in the client's certificate.
    pub certificate: Option<Arc<str>>,
    /// The client's name in its certificate, which the forwarding gateway has verified.
    pub client_name: Option<ClientName>,
}

/// Builds a challenge. It executes nothing, whatever server gets it: `OPTIONS *` addresses the server itself.
pub(crate) fn challenge_request(address: &str, nonce: &ChallengeNonce) -> Option<Request<Body>> {
    let mut http = Request::new(Body::empty());
    *http.method_mut() = Method::OPTIONS;
    *http.uri_mut() = Uri::from_static("*");
    http.headers_mut().insert(HOST, HeaderValue::from_str(address).ok()?);
    let challenge = HeaderValue::from_str(&format!("nonce={}", nonce.as_str())).expect("hex digits");
    http.headers_mut().insert(FENCING_FORWARDED, challenge);
    Some(http)
}

/// The answer to a [`challenge_request`]; `None` for any other request.
pub fn challenge_response(http: &Request<Body>, ours: &PeerSecret) -> Option<Reply> {
    if *http.method() != Method::OPTIONS || http.uri().path() != "*" {
        return None;
    }
    let nonce = ChallengeNonce::parse(single_value(http.headers())?.strip_prefix("nonce=")?)?;
    let proof = format!("proof={}", ours.respond(&nonce).as_str());
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply.headers_mut().insert(FENCING_FORWARDED, HeaderValue::from_str(&proof).expect("hex digits"));
    Some(reply)
}

/// True if the answer proves that its sender has the peer secret.
pub fn is_proven(headers: &HeaderMap, secret: &PeerSecret, nonce: &ChallengeNonce) -> bool {
    let proof = single_value(headers).and_then(|line| line.strip_prefix("proof="));
    proof.is_some_and(|proof| secret.respond(nonce).matches(proof))
}

/// The value of the field, if the field is there exactly once.
fn single_value(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(FENCING_FORWARDED).iter();
    lines.next().filter(|_| lines.next().is_none())?.to_str().ok()
}

/// The longest wait that is accepted.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Reads the field of a forwarded request, if it has the peer secret `ours`: `pass=<hex>; key=<key>; wait=<ms>[;
/// certificate=<hex>][; client=<kind>:<hex>]; from=<gateway>`. A key has no space in it, so `; ` separates. The name of
/// a client may have any printable character, so its bytes are hex digits; its kind is a word of the policy.
pub fn parse_and_verify(presented: &HeaderMap, ours: &PeerSecret) -> Option<PeerForwardHeader> {
    let line = single_value(presented)?;
    let [pass, key, wait, from] = *line.splitn(4, "; ").collect::<Vec<_>>() else { return None };
    let pass = PeerSecret::parse(pass.strip_prefix("pass=")?).ok()?;
    if pass != *ours {
        return None;
    }
    let wait = Duration::from_millis(wait.strip_prefix("wait=")?.parse().ok()?);
    let (certificate, from) = optional_part(from, "certificate=")?;
    let (client_name, from) = optional_part(from, "client=")?;
    let client_name = match client_name {
        Some(written) => Some(parse_client_name(written)?),
        None => None,
    };
    Some(PeerForwardHeader {
        from: from.strip_prefix("from=")?.into(),
        key: key.strip_prefix("key=")?.to_owned(),
        until: Instant::now() + wait.min(MAX_WAIT),
        certificate: certificate.map(Into::into),
        client_name,
    })
}

/// Returns the value of an optional part, and the rest of the line after it. `None` if nothing follows the part.
fn optional_part<'l>(line: &'l str, name: &str) -> Option<(Option<&'l str>, &'l str)> {
    match line.strip_prefix(name) {
        Some(rest) => rest.split_once("; ").map(|(value, rest)| (Some(value), rest)),
        None => Some((None, line)),
    }
}

/// Parses a name with its kind.
fn parse_client_name(written: &str) -> Option<ClientName> {
    let (kind, digits) = written.split_once(':')?;
    let name = String::from_utf8(parse_hex_bytes(digits)?).ok()?;
    ClientName::new(CertificateNameKind::from_word(kind)?, &name)
}

/// Parses pairs of lower-case hexadecimal digits, at least one.
fn parse_hex_bytes(digits: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).filter(|_| !digit.is_ascii_uppercase());
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| u8::try_from(value(*high)? * 16 + value(*low)?).ok();
    if pairs.is_empty() || !rest.is_empty() { None } else { pairs.iter().map(byte).collect() }
}

/// The identity of a client, as the gateway that forwards its request has verified it.
#[derive(Debug, Clone, Copy, Default)]
pub struct PeerForwardedIdentity<'c> {
    /// The digest of the certificate's identity, as in [`PeerForwardHeader::certificate`].
    pub certificate: Option<&'c str>,
    /// The name in the certificate, as in [`PeerForwardHeader::client_name`].
    pub name: Option<&'c ClientName>,
}

/// Writes the field that [`verify`] reads.
pub fn encode(
    secret: &PeerSecret,
    key: &str,
    left: Duration,
    client: PeerForwardedIdentity<'_>,
    from: &str,
) -> String {
    let certificate = client.certificate.map(|digest| format!("; certificate={digest}")).unwrap_or_default();
    let name = client
        .name
        .map(|name| format!("; client={}:{}", name.kind().as_str(), encode_hex(name.without_kind())))
        .unwrap_or_default();
    format!("pass={}; key={key}; wait={}{certificate}{name}; from={from}", secret.as_str(), left.as_millis())
}

fn encode_hex(text: &str) -> String {
    let mut digits = vec![0; text.len() * 2];
    hex::write_digits(text.as_bytes(), &mut digits);
    String::from_utf8(digits).expect("digits are ASCII")
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use fencegate_process::randomness::SystemRandomness;

    fn presented(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FENCING_FORWARDED, HeaderValue::from_str(line).expect("a value"));
        }
        headers
    }

    /// Only a challenge is answered, and only with a proof of the peer secret that is bound to its nonce.
    #[test]
    fn only_challenge_gets_proof_of_secret() {
        let ours = PeerSecret::new(&SystemRandomness);
        let nonce = ChallengeNonce::new(&SystemRandomness);
        let challenge = || challenge_request("gw-1:9910", &nonce).expect("an address");
        let answer = challenge_response(&challenge(), &ours).expect("answered");
        assert!(is_proven(answer.headers(), &ours, &nonce));
        assert!(!is_proven(answer.headers(), &PeerSecret::new(&SystemRandomness), &nonce));
        assert!(!is_proven(answer.headers(), &ours, &ChallengeNonce::new(&SystemRandomness)));
        assert!(!is_proven(challenge().headers(), &ours, &nonce), "its own echo");
        assert!(!is_proven(&HeaderMap::new(), &ours, &nonce));
        let mut other = challenge();
        *other.method_mut() = Method::POST;
        assert!(challenge_response(&other, &ours).is_none());
        let mut other = challenge();
        *other.uri_mut() = Uri::from_static("/pay/7");
        assert!(challenge_response(&other, &ours).is_none());
        let mut twice = challenge();
        twice.headers_mut().append(FENCING_FORWARDED, HeaderValue::from_static("nonce="));
        assert!(challenge_response(&twice, &ours).is_none());
    }

    /// A forwarded header is accepted only once, in full, and with the peer secret; its wait is capped at `MAX_WAIT`.
    #[test]
    fn header_needs_peer_secret() {
        let [ours, other] = [(), ()].map(|()| PeerSecret::new(&SystemRandomness));
        let line = |pass| {
            encode(
                pass,
                "a;b=c,pass=x",
                Duration::from_millis(1500),
                PeerForwardedIdentity::default(),
                "gw-1",
            )
        };
        let before = Instant::now();
        let read = parse_and_verify(&presented(&[&line(&ours)]), &ours).expect("believed");
        assert_eq!((&*read.from, &*read.key, &read.certificate), ("gw-1", "a;b=c,pass=x", &None));
        for (certificate, name) in [
            (Some("0f"), None),
            (Some("0f"), Some((CertificateNameKind::CommonName, "till 7; from=gw-2"))),
            (None, Some((CertificateNameKind::CommonName, "till-7.shop"))),
            (None, Some((CertificateNameKind::Dns, "till-7.shop"))),
            (None, Some((CertificateNameKind::Uri, "spiffe://shop/7"))),
        ] {
            let name = name.map(|(kind, name)| ClientName::new(kind, name).expect("a name"));
            let client = PeerForwardedIdentity { certificate, name: name.as_ref() };
            let certified = encode(&ours, "a", Duration::ZERO, client, "gw-1");
            let known = parse_and_verify(&presented(&[&certified]), &ours).expect("believed");
            assert_eq!((&*known.from, known.certificate.as_deref()), ("gw-1", certificate));
            assert_eq!(known.client_name, name);
        }
        assert!(read.until >= before + Duration::from_millis(1500));
        assert!(read.until <= Instant::now() + Duration::from_millis(1500));
        let hex = ours.as_str();
        for bad in [
            vec![line(&other)],
            vec![line(&ours), line(&ours)],
            vec![],
            vec![format!("pass={hex}")],
            vec![format!("pass={hex}; key=a; wait=-1; from=gw")],
            vec![format!("pass={hex}; key=a; wait=99999999999999999999999; from=gw")],
            vec![format!("pass=; key=a; wait=1; from=gw")],
            vec![format!("pass={hex}; key=a; wait=1; certificate=0f")],
            vec![format!("pass={hex}; key=a; wait=1; certificate=0f; gw")],
            vec![format!("pass={hex}; key=a; wait=1; client=cn:61")],
            vec![format!("pass={hex}; key=a; wait=1; client=; from=gw")],
            vec![format!("pass={hex}; key=a; wait=1; client=61; from=gw")],
            vec![format!("pass={hex}; key=a; wait=1; client=:61; from=gw")],
            vec![format!("pass={hex}; key=a; wait=1; client=cn:; from=gw")],
            vec![format!("pass={hex}; key=a; wait=1; client=CN:61; from=gw")],
            vec![format!("pass={hex}; key=a; wait=1; client=email:61; from=gw")],
            vec![format!("pass={hex}; key=a; wait=1; client=uri:61; from=gw")],
            vec![format!("pass={hex}; key=a; wait=1; client=dns:3a; from=gw")],
            vec![format!("pass={hex}; key=a; wait=1; client=cn:6; from=gw")],
            vec![format!("pass={hex}; key=a; wait=1; client=cn:6G; from=gw")],
            vec![format!("pass={hex}; key=a; wait=1; client=cn:4A; from=gw")],
            vec![format!("pass={hex}; key=a; wait=1; client=cn:ff; from=gw")],
            vec![format!("pass={hex}; key=a; wait=1; client=cn:61; certificate=0f; from=gw")],
        ] {
            let lines: Vec<&str> = bad.iter().map(String::as_str).collect();
            assert_eq!(parse_and_verify(&presented(&lines), &ours), None, "{bad:?}");
        }
        let long = format!("pass={hex}; key=a; wait={}; from=gw", u64::MAX);
        let read = parse_and_verify(&presented(&[&long]), &ours).expect("believed");
        assert!(read.until <= Instant::now() + MAX_WAIT, "a wait without end");
    }

    proptest! {
        /// Key, sender and wait of a forwarded header are read as encoded, the wait capped at `MAX_WAIT`.
        #[test]
        fn header_round_trips(key in "[!-~]{1,40}", from in "[ -~]{0,20}", wait: u64) {
            let ours = PeerSecret::new(&SystemRandomness);
            let line = encode(&ours, &key, Duration::from_millis(wait), PeerForwardedIdentity::default(), from.trim());
            let before = Instant::now();
            let read = parse_and_verify(&presented(&[&line]), &ours).expect("believed");
            prop_assert_eq!((&*read.key, &*read.from), (key.as_str(), from.trim()));
            prop_assert!(read.until >= before + Duration::from_millis(wait).min(MAX_WAIT));
            prop_assert!(read.until <= Instant::now() + MAX_WAIT);
        }

        /// Without the peer secret no text is accepted.
        #[test]
        fn text_without_secret_is_rejected(
            line in "[ -~]{0,60}|pass=[0-9a-fA-F]{63,65}; key=[!-~]{0,9}; wait=[0-9]{0,22}; from=[ -~]{0,9}|(nonce|proof)=[0-9a-f]{64}",
        ) {
            let ours = PeerSecret::new(&SystemRandomness);
            let headers = presented(&[&line]);
            prop_assert_eq!(parse_and_verify(&headers, &ours), None);
            prop_assert!(!is_proven(&headers, &ours, &ChallengeNonce::new(&SystemRandomness)));
            let mut challenge = challenge_request("gw-1:9910", &ChallengeNonce::new(&SystemRandomness)).expect("an address");
            challenge.headers_mut().insert(FENCING_FORWARDED, headers[FENCING_FORWARDED].clone());
            let nonce = line.strip_prefix("nonce=").and_then(ChallengeNonce::parse);
            prop_assert_eq!(challenge_response(&challenge, &ours).is_some(), nonce.is_some());
        }

        #[test]
        fn any_bytes_parse_without_panic(bytes: Vec<u8>) {
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                let headers = HeaderMap::from_iter([(FENCING_FORWARDED, value)]);
                prop_assert_eq!(parse_and_verify(&headers, &PeerSecret::new(&SystemRandomness)), None);
            }
        }
    }
}
