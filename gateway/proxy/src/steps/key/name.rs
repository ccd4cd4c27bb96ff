//! The identity of an operation between gateway and guard. It consists of hashes, so that no store has the names that
//! clients use.

use aws_lc_rs::digest::{Context, SHA256};
use fencegate_http::connection_info::ClientCertIdentity;
use fencegate_policies::{
    operation::{FencingOperationHeader, OperationId, RequestFingerprint},
    plan::{self, IdempotencyRule, is_credential, normalize},
};
use hyper::{HeaderMap, header::COOKIE};

/// The parts that must be equal in two requests with the same operation name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FingerprintInput<'a> {
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    pub body: &'a [u8],
    /// The credentials of the client; empty where clients are told apart by a principal.
    pub credentials: &'a FingerprintCredentials,
}

/// The credentials of a client. Where operations have no principal, only the client that has started one receives its
/// outcome.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FingerprintCredentials(Vec<Vec<u8>>);

impl FingerprintCredentials {
    /// `certificate` is the result of [`certificate_digest`] for the client's certificate.
    pub fn from_request(headers: &HeaderMap, certificate: Option<&str>) -> Self {
        let mut shown: Vec<(String, Vec<u8>)> = Vec::new();
        for (name, value) in headers.iter().filter(|(name, _)| is_credential(name.as_str())) {
            match shown.iter_mut().find(|(known, _)| *name == COOKIE && known == COOKIE.as_str()) {
                // A client of HTTP/2 may send a field for each cookie (RFC 9113, 8.2.3), so the lines are joined.
                Some((_, cookies)) => cookies.extend([&b"; "[..], value.as_bytes()].concat()),
                None => shown.push((normalize(name.as_str()), value.as_bytes().to_vec())),
            }
        }
        // The sort is stable, so lines of the same name keep their order.
        shown.sort_by(|(one, _), (other, _)| one.cmp(other));
        let certificate = certificate.map(|digest| ("certificate".to_owned(), digest.as_bytes().to_vec()));
        let parts = shown.into_iter().chain(certificate);
        Self(parts.flat_map(|(name, value)| [name.into_bytes(), value]).collect())
    }
}

/// The digest of the identity in a client's certificate. A renewed certificate has the same digest.
pub(crate) fn certificate_digest(identity: &ClientCertIdentity) -> String {
    let ClientCertIdentity { subject, common_names, names, fingerprint: _ } = identity;
    let parts = [subject].into_iter().chain(common_names).chain(names);
    OperationId::from_bytes(hash(parts.map(String::as_bytes))).to_string()
}

/// `upstream` is the name of the upstream in the policy. It is no part of the identity, because it may change. Older
/// builds included it, so an operation is also looked up under the identity that they gave it.
pub(crate) fn operation_header(
    upstream: &str,
    once: &IdempotencyRule,
    named: &plan::ClientOperationName,
    wanted: FingerprintInput<'_>,
) -> FencingOperationHeader {
    let FingerprintInput { method, target, body, credentials } = wanted;
    let parts = [method.as_bytes(), target.as_bytes(), body].into_iter();
    let parts = parts.chain(credentials.0.iter().map(Vec::as_slice));
    FencingOperationHeader {
        id: operation_id(&once.scope, named),
        former: (once.scope != upstream).then(|| operation_id(upstream, named)),
        fingerprint: RequestFingerprint::from_bytes(hash(parts)),
        keep: once.keep.as_secs(),
        finals: once.finals.clone(),
        askable: once.uses_default_header(),
    }
}

/// The identity of an operation. Within a scope, two requests are one operation exactly if principal and name are
/// equal.
pub fn operation_id(scope: &str, named: &plan::ClientOperationName) -> OperationId {
    OperationId::from_bytes(hash([scope.as_bytes(), named.principal.as_bytes(), named.name.as_bytes()]))
}

/// The hash under which the operations of a principal are counted.
pub(crate) fn principal_hash(named: &plan::ClientOperationName) -> Option<String> {
    let hashed =
        || OperationId::from_bytes(hash([&b"principal"[..], named.principal.as_bytes(), b""])).reference();
    (!named.principal.is_empty()).then(hashed)
}

/// SHA-256 over the parts, each with its length in front, so that `ab`, `c` differs from `a`, `bc`.
fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use fencegate_policies::file;
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn named(name: &str, principal: &str) -> plan::ClientOperationName {
        plan::ClientOperationName { name: name.into(), principal: principal.into() }
    }

    fn once(scope: &str) -> IdempotencyRule {
        let plan =
            file::load(include_str!("../../../../../policies/tests/complete.yaml")).plan.expect("sound");
        let routes = plan.serving.routes.routes();
        let once = routes.iter().find_map(|route| route.fence.as_ref()?.once.clone()).expect("one");
        IdempotencyRule { scope: scope.into(), ..once }
    }

    const NOBODY: &FingerprintCredentials = &FingerprintCredentials(Vec::new());
    const WANTED: FingerprintInput<'_> =
        FingerprintInput { method: "POST", target: "/a", body: b"{}", credentials: NOBODY };

    fn shown(lines: &[(&str, &str)], certificate: Option<&str>) -> FingerprintCredentials {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        FingerprintCredentials::from_request(&headers, certificate)
    }

    /// One name in two scopes, or from two principals, names two operations.
    #[test]
    fn scope_and_principal_separate_operations() {
        let id =
            |scope, name, principal| operation_header("u", &once(scope), &named(name, principal), WANTED).id;
        let ids =
            [id("s", "n", "p"), id("t", "n", "p"), id("s", "n", "q"), id("s", "np", ""), id("sn", "", "p")];
        for (at, one) in ids.iter().enumerate() {
            assert!(ids.iter().skip(at + 1).all(|other| one != other), "{at}");
        }
    }

    /// The former identity of an operation has the name of the upstream as its scope.
    #[test]
    fn former_identity_has_upstream_name() {
        let of = |upstream, scope| operation_header(upstream, &once(scope), &named("n", "p"), WANTED);
        assert_eq!(of("u", "").id, of("v", "").id);
        assert_ne!(of("u", "").former, of("v", "").former);
        // If the scope is the former name of the upstream, both identities are equal, so there is no former one to
        // look up.
        assert_eq!(Some(of("v", "u").id), of("u", "").former);
        assert_eq!(of("u", "u").former, None);
    }

    /// The fingerprint depends on method, target, body and credentials.
    #[test]
    fn fingerprint_covers_whole_request() {
        let of = |wanted| operation_header("u", &once(""), &named("n", "p"), wanted).fingerprint;
        let same = of(WANTED);
        assert_eq!(of(FingerprintInput { ..WANTED }), same);
        for other in [
            FingerprintInput { method: "PUT", ..WANTED },
            FingerprintInput { target: "/a?b", ..WANTED },
            FingerprintInput { body: b"{ }", ..WANTED },
            FingerprintInput { credentials: &shown(&[("authorization", "Bearer a")], None), ..WANTED },
        ] {
            assert_ne!(of(other), same);
        }
    }

    /// A request with other credentials or another certificate has another fingerprint.
    #[test]
    fn fingerprint_depends_on_credentials() {
        let fingerprint = |credentials: &FingerprintCredentials| {
            operation_header("u", &once(""), &named("n", ""), FingerprintInput { credentials, ..WANTED })
                .fingerprint
        };
        let all = [
            shown(&[], None),
            shown(&[("authorization", "a")], None),
            shown(&[("authorization", "b")], None),
            shown(&[("cookie", "a")], None),
            shown(&[("x-api-key", "a")], None),
            shown(&[("authorization", "a"), ("cookie", "a")], None),
            shown(&[("authorization", "a"), ("authorization", "b")], None),
            shown(&[("authorization", "b"), ("authorization", "a")], None),
            shown(&[], Some("a")),
            shown(&[("authorization", "a")], Some("a")),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|other| fingerprint(other) != fingerprint(one)), "{one:?}");
        }
        let one = shown(&[("cookie", "a=1; b=2"), ("accept", "*/*"), ("X-API-Key", "k")], None);
        let same =
            shown(&[("x_api_key", "k"), ("cookie", "a=1"), ("cookie", "b=2"), ("x-csrf-token", "t")], None);
        assert_eq!(fingerprint(&one), fingerprint(&same));
        assert_eq!(shown(&[("accept", "*/*")], None), *NOBODY);
    }

    /// A renewed certificate with the same subject and names is the same identity.
    #[test]
    fn renewed_certificate_keeps_identity() {
        let identity = |subject: &str, names: &[&str], fingerprint: &str| ClientCertIdentity {
            subject: subject.into(),
            common_names: Vec::new(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            fingerprint: fingerprint.into(),
        };
        let one = certificate_digest(&identity("CN=a", &["DNS:a"], "1"));
        assert_eq!(one, certificate_digest(&identity("CN=a", &["DNS:a"], "2")));
        for other in
            [identity("CN=b", &["DNS:a"], "1"), identity("CN=a", &["DNS:b"], "1"), identity("CN=a", &[], "1")]
        {
            assert_ne!(one, certificate_digest(&other));
        }
    }
}
