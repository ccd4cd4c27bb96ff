//! Keys, operations, shares and rules are made of what the gateway has verified of a client: the name in its certificate, and the
//! claims of its bearer token. What a client can choose itself counts for nothing, and is refused before any lock.
//!
//! Two clients with certificates are two clients, whatever their requests say. The usual attacks on bearer tokens are
//! refused, without a node in ZooKeeper and without a request to the service: `none`, HMAC with the public key, `kid`
//! as a path, another audience, an expired token, a token that is not yet valid, a huge token, two tokens, and a
//! token in the query. Keys rotate at a URL and in a file, under load and without a failed request, and they outlive
//! their server. Both identities are passed on to the gateway that holds the key.

mod certificates;
pub(super) mod rotation;
mod tokens;

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use fencegate_tests::{
    client::{ClientResponse, TestRequest},
    policy::TestPolicy,
    site::TestSite,
};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, jwk::Jwk};
use serde_json::{Value, json};

const ISSUER: &str = "https://login.example";
const AUDIENCE: &str = "payments";

/// A key with which an issuer signs tokens.
pub(super) struct IssuerKey {
    kid: String,
    encoding: EncodingKey,
    /// The public half in PEM.
    pem: String,
}

impl IssuerKey {
    pub(super) fn new(kid: &str) -> Self {
        let pair = rcgen::KeyPair::generate().expect("the kernel has randomness");
        let encoding = EncodingKey::from_ec_der(&pair.serialize_der());
        Self { kid: kid.to_owned(), encoding, pem: pair.public_key_pem() }
    }

    fn public(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.encoding, Algorithm::ES256).expect("a key of this kind");
        jwk.common.key_id = Some(self.kid.clone());
        serde_json::to_value(jwk).expect("plain data")
    }

    fn header(&self) -> Header {
        Header { kid: Some(self.kid.clone()), ..Header::new(Algorithm::ES256) }
    }

    fn sign(&self, claims: &Value) -> String {
        encode(&self.header(), claims, &self.encoding).expect("signed")
    }

    /// A valid token of this client.
    fn token_of(&self, subject: &str) -> String {
        self.sign(&claims_of(subject))
    }
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn claims_of(subject: &str) -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "exp": unix_now() + 300})
}

fn with_claim(name: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims_of("ann");
    claims[name] = value.into();
    claims
}

fn key_set(keys: &[&IssuerKey]) -> String {
    let keys: Vec<Value> = keys.iter().map(|key| key.public()).collect();
    json!({ "keys": keys }).to_string()
}

/// The part of a policy about the issuer. `keys`: the field that says where its keys are, and its value.
pub(super) fn issuer(keys: (&str, &str)) -> Value {
    let (place, at) = keys;
    json!({"issuer": ISSUER, "audiences": [AUDIENCE], "algorithms": ["ES256"], place: at})
}

fn issuer_with_file(file: &Path) -> Value {
    issuer(("jwks_file", file.to_str().expect("our own name")))
}

/// A policy in which the key of a request contains the subject of its token.
pub(super) fn policy_by_token(site: &TestSite, issuer: Value) -> TestPolicy {
    site.policy("gw-1")
        .with("/jwt", json!([issuer]))
        .with("/routes/0/fence/key", "account/{jwt:/sub}/{path.account}")
}

fn with_bearer(request: TestRequest, token: &str) -> TestRequest {
    request.field("Authorization", &format!("Bearer {token}"))
}

#[track_caller]
fn assert_refused(answer: &ClientResponse, status: u16, reason: &str, what: &str) {
    assert_eq!((answer.status, answer.reason().as_str()), (status, reason), "{what}: {answer:?}");
}
