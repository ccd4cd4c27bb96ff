//! Tokens that no issuer of the policy has made for this installation are refused, whatever they look like. The tests
//! use real keys, and no clock.

use std::{fs, sync::LazyLock};

use fencegate_policies::plan::{JwksSource, JwtAlgorithm};
use jsonwebtoken::{
    Algorithm, EncodingKey, Header, encode,
    jwk::{Jwk, PublicKeyUse},
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::{
    jwks::encode_base64url as base64,
    key_error::TicketJwkError,
    keys::{SharedSecret, SigningKeyPair},
};
use fencegate_process::randomness::SystemRandomness;

/// The time of the tests, in seconds since 1970: a moment in January 2027.
const NOW: u64 = 1_800_000_000;
const ISSUER: &str = "https://login.example";
const LEEWAY: u64 = 30;

/// A key pair of an issuer.
struct IssuerKey {
    algorithm: Algorithm,
    encoding: EncodingKey,
    kid: String,
    /// The public key, for a pair from which the library does not derive it.
    public: Option<Jwk>,
}

impl IssuerKey {
    fn ed25519(kid: &str) -> Self {
        let pair = SigningKeyPair::generate(&SystemRandomness);
        let public = json!({ "kty": "OKP", "crv": "Ed25519", "x": base64(&pair.public.x) });
        let public = serde_json::from_value(public).expect("a key");
        Self { algorithm: Algorithm::EdDSA, encoding: pair.encoding, kid: kid.into(), public: Some(public) }
    }

    fn es256(kid: &str) -> Self {
        use aws_lc_rs::{
            rand::SystemRandom,
            signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
        };
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let encoding = EncodingKey::from_ec_der(document.expect("randomness").as_ref());
        Self { algorithm: Algorithm::ES256, encoding, kid: kid.into(), public: None }
    }

    fn rs256(kid: &str) -> Self {
        use aws_lc_rs::{
            encoding::{AsDer, Pkcs8V1Der},
            rsa::{KeyPair, KeySize},
        };
        let pair = KeyPair::generate(KeySize::Rsa2048).expect("randomness");
        let document: Pkcs8V1Der<'_> = pair.as_der().expect("it is written");
        // The library reads PKCS #1, which stands in PKCS #8 behind a head of 26 bytes: version, algorithm, and two
        // lengths.
        let encoding = EncodingKey::from_rsa_der(&document.as_ref()[26..]);
        Self { algorithm: Algorithm::RS256, encoding, kid: kid.into(), public: None }
    }

    fn public(&self) -> Jwk {
        let derived = || Jwk::from_encoding_key(&self.encoding, self.algorithm).expect("a key of this kind");
        let mut jwk = self.public.clone().unwrap_or_else(derived);
        jwk.common.key_id = Some(self.kid.clone());
        jwk.common.public_key_use = Some(PublicKeyUse::Signature);
        jwk
    }

    fn header(&self) -> Header {
        let mut header = Header::new(self.algorithm);
        header.kid = Some(self.kid.clone());
        header
    }

    fn sign(&self, claims: &Value) -> String {
        self.sign_with(&self.header(), claims)
    }

    fn sign_with(&self, header: &Header, claims: &Value) -> String {
        encode(header, claims, &self.encoding).expect("signed")
    }
}

fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": "pay", "sub": "till-7", "exp": NOW + 300, "nbf": NOW - 10, "iat": NOW - 10,
        "tenant": {"id": 42}, "groups": ["a", "b"],
    })
}

fn with(name: &str, value: Value) -> Value {
    let mut changed = claims();
    changed[name] = value;
    changed
}

fn without(name: &str) -> Value {
    let mut changed = claims();
    changed.as_object_mut().expect("an object").remove(name);
    changed
}

fn issuer(algorithms: &[JwtAlgorithm]) -> JwtIssuer {
    JwtIssuer {
        issuer: ISSUER.into(),
        audiences: vec!["pay".into(), "book".into()],
        algorithms: algorithms.to_vec(),
        keys: JwksSource::File("/unused".into()),
        leeway: Duration::from_secs(LEEWAY),
        forward: true,
    }
}

const ALL: [JwtAlgorithm; 3] = [JwtAlgorithm::Es256, JwtAlgorithm::Rs256, JwtAlgorithm::EdDsa];

fn key_set(keys: &[Jwk]) -> String {
    json!({ "keys": keys }).to_string()
}

/// A verifier for one issuer that has fetched these keys.
fn verifier_of(algorithms: &[JwtAlgorithm], set: &str) -> AccessTokenVerifier {
    let issuer = issuer(algorithms);
    let keys = VerifyingKeys::for_issuer(AccessTokenRules::from(&issuer));
    keys.set_keys(set.as_bytes(), &"a test").expect("a key set");
    let pointers = ["/sub", "/tenant/id", "/groups/*"].map(|text| JsonPointer::parse(text).expect(text));
    AccessTokenVerifier::new(vec![TrustedIssuer::new(&issuer, Arc::new(keys))], pointers.into())
}

fn verify(verifier: &AccessTokenVerifier, token: &str) -> Result<(), AccessTokenVerificationError> {
    verifier.verify(token.as_bytes(), NOW).map(drop)
}

fn joined(header: &Value, claims: &str, signature: &[u8]) -> String {
    let [header, claims] = [header.to_string().as_str(), claims].map(|part| base64(part.as_bytes()));
    format!("{header}.{claims}.{}", base64(signature))
}

/// Keys of all listed algorithms, and a verifier that knows them.
struct KnownIssuer {
    keys: [IssuerKey; 3],
    verifier: AccessTokenVerifier,
}

static KNOWN: LazyLock<KnownIssuer> = LazyLock::new(|| {
    let keys = [IssuerKey::es256("ec"), IssuerKey::rs256("rsa"), IssuerKey::ed25519("ed")];
    let set = key_set(&keys.each_ref().map(IssuerKey::public));
    KnownIssuer { verifier: verifier_of(&ALL, &set), keys }
});

/// A token that an issuer has made for this installation is valid, for each kind of key that an issuer may have.
#[test]
fn good_token_counts() {
    let KnownIssuer { keys, verifier } = &*KNOWN;
    for key in keys {
        let token = key.sign(&claims());
        // At the second verification the token is in the cache.
        for _ in 0..2 {
            let verified = verifier.verify(token.as_bytes(), NOW).expect("good");
            assert_eq!((verified.issuer, verified.forward), (0, true));
            let payload = claims().to_string();
            let wanted = ClaimValues::parse(payload.as_bytes(), &verifier.claims).expect("plain");
            assert_eq!(verified.claims, wanted, "{:?}", key.algorithm);
        }
        for audience in [json!("book"), json!(["other", "book"])] {
            assert_eq!(verify(verifier, &key.sign(&with("aud", audience))), Ok(()));
        }
        for typ in [None, Some("jwt"), Some("at+jwt"), Some("application/AT+JWT")] {
            let header = Header { typ: typ.map(str::to_owned), ..key.header() };
            assert_eq!(verify(verifier, &key.sign_with(&header, &claims())), Ok(()), "{typ:?}");
        }
    }
}

/// `none`, in any spelling, and every algorithm that is not listed is refused, with and without a signature.
#[test]
fn algorithm_none_is_refused() {
    let KnownIssuer { keys, verifier } = &*KNOWN;
    let signature = keys[0].sign(&claims());
    let signature = signature.rsplit('.').next().expect("three parts").as_bytes();
    for algorithm in ["none", "None", "NONE", "nOnE", "", "ES256 ", "RSA-OAEP", "ES512", "dir"] {
        for kid in [json!("ec"), json!(null)] {
            let header = json!({ "alg": algorithm, "typ": "JWT", "kid": kid });
            for signature in [&b""[..], signature] {
                let token = joined(&header, &claims().to_string(), signature);
                assert_eq!(
                    verify(verifier, &token),
                    Err(AccessTokenVerificationError::Format),
                    "{algorithm}"
                );
            }
        }
    }
    // The policy does not list this algorithm, although the key supports it.
    let header = Header { alg: Algorithm::PS256, ..keys[1].header() };
    let token = keys[1].sign_with(&header, &claims());
    assert_eq!(verify(verifier, &token), Err(AccessTokenVerificationError::Algorithm));
}

/// An HMAC whose secret is the public key, in any of its written forms, is refused, and so is a key of another kind.
#[test]
fn public_key_is_no_secret() {
    let KnownIssuer { keys, verifier } = &*KNOWN;
    for key in keys {
        let jwk = serde_json::to_string(&key.public()).expect("plain data");
        let members: Value = serde_json::from_str(&jwk).expect("JSON");
        let numbers = ["n", "x", "y"].iter().filter_map(|name| members[*name].as_str());
        let decoded = numbers.clone().filter_map(|text| URL_SAFE_NO_PAD.decode(text).ok());
        let secrets: Vec<Vec<u8>> = numbers
            .clone()
            .map(|text| text.as_bytes().to_vec())
            .chain(decoded)
            .chain([jwk.clone().into()])
            .collect();
        for secret in secrets {
            for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
                for kid in [Some(key.kid.clone()), None] {
                    let mut header = Header::new(algorithm);
                    header.kid = kid.clone();
                    let token =
                        encode(&header, &claims(), &EncodingKey::from_secret(&secret)).expect("signed");
                    let refused = verify(verifier, &token).expect_err("a forgery");
                    let unknown = AccessTokenVerificationError::UnknownKey { issuer: 0 };
                    assert_eq!(
                        refused,
                        if kid.is_some() { AccessTokenVerificationError::Algorithm } else { unknown }
                    );
                }
            }
        }
    }
    // The header has an `alg` of another family, under the `kid` of a key.
    let header = Header { kid: Some("rsa".into()), ..keys[0].header() };
    assert_eq!(
        verify(verifier, &keys[0].sign_with(&header, &claims())),
        Err(AccessTokenVerificationError::Algorithm)
    );
}

/// A shared secret in a key set verifies nothing, even if the policy could list its algorithm.
#[test]
fn secret_in_key_set_is_ignored() {
    let ed = IssuerKey::ed25519("ed");
    let secret =
        json!({ "kty": "oct", "kid": "s", "alg": "HS256", "k": base64(b"0123456789abcdef0123456789abcdef") });
    let set = json!({ "keys": [secret, ed.public()] }).to_string();
    let verifier = verifier_of(&ALL, &set);
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some("s".into());
    let key = EncodingKey::from_secret(b"0123456789abcdef0123456789abcdef");
    let token = encode(&header, &claims(), &key).expect("signed");
    assert_eq!(verify(&verifier, &token), Err(AccessTokenVerificationError::UnknownKey { issuer: 0 }));
    assert_eq!(verify(&verifier, &ed.sign(&claims())), Ok(()));
}

/// A `kid` is only compared: a path, an SQL statement or a URL in it names no key.
#[test]
fn kid_is_only_compared() {
    let KnownIssuer { keys, verifier } = &*KNOWN;
    for kid in [
        "../../../../dev/null",
        "/proc/self/environ",
        "file:///etc/passwd",
        "https://evil.example/jwks.json",
        "ec' OR '1'='1",
        "ec\u{0}",
        "EC",
        "",
        " ec",
    ] {
        let header = Header { kid: Some(kid.into()), ..keys[0].header() };
        let token = keys[0].sign_with(&header, &claims());
        assert_eq!(
            verify(verifier, &token),
            Err(AccessTokenVerificationError::UnknownKey { issuer: 0 }),
            "{kid}"
        );
        let empty = Header { kid: Some(kid.into()), ..Header::new(Algorithm::HS256) };
        let token = encode(&empty, &claims(), &EncodingKey::from_secret(b"")).expect("signed");
        assert!(verify(verifier, &token).is_err(), "{kid}");
    }
}

/// A key that a token has in its header, or to which its header refers, is ignored.
#[test]
fn key_in_header_is_ignored() {
    let KnownIssuer { keys, verifier } = &*KNOWN;
    let stranger = IssuerKey::es256("ec");
    let mut bringing = stranger.header();
    bringing.jwk = Some(stranger.public());
    bringing.jku = Some("https://evil.example/jwks.json".into());
    bringing.x5u = Some("https://evil.example/chain.pem".into());
    assert_eq!(
        verify(verifier, &stranger.sign_with(&bringing, &claims())),
        Err(AccessTokenVerificationError::Signature)
    );
    bringing.kid = None;
    assert_eq!(
        verify(verifier, &stranger.sign_with(&bringing, &claims())),
        Err(AccessTokenVerificationError::Signature)
    );
    bringing.kid = Some("evil".into());
    let unknown = Err(AccessTokenVerificationError::UnknownKey { issuer: 0 });
    assert_eq!(verify(verifier, &stranger.sign_with(&bringing, &claims())), unknown);
    // Such a field in the header of a good token changes nothing.
    let mut odd = keys[0].header();
    odd.jku = Some("https://evil.example/jwks.json".into());
    assert_eq!(verify(verifier, &keys[0].sign_with(&odd, &claims())), Ok(()));
}

/// A token of another type under the same key, or with an extension that has to be understood, is refused.
#[test]
fn other_token_of_issuer_is_refused() {
    let KnownIssuer { keys, verifier } = &*KNOWN;
    for typ in ["fencing-ticket+jwt", "logout+jwt", "dpop+jwt", "JOSE", ""] {
        let header = Header { typ: Some(typ.into()), ..keys[0].header() };
        let refused = verify(verifier, &keys[0].sign_with(&header, &claims()));
        assert_eq!(refused, Err(AccessTokenVerificationError::Type), "{typ}");
    }
    let header = Header { crit: Some(vec!["b64".into()]), ..keys[0].header() };
    assert_eq!(
        verify(verifier, &keys[0].sign_with(&header, &claims())),
        Err(AccessTokenVerificationError::Critical)
    );
}

/// A signed token of another issuer, for another audience or without a required claim is refused.
#[test]
fn signed_token_for_others_is_refused() {
    let KnownIssuer { keys, verifier } = &*KNOWN;
    for (changed, flaw) in [
        (with("iss", json!("https://login.example/")), AccessTokenVerificationError::Issuer),
        (with("iss", json!("HTTPS://login.example")), AccessTokenVerificationError::Issuer),
        (with("iss", json!([ISSUER])), AccessTokenVerificationError::Claims),
        (without("iss"), AccessTokenVerificationError::Claims),
        (with("aud", json!("Pay")), AccessTokenVerificationError::Audience),
        (with("aud", json!(["other"])), AccessTokenVerificationError::Audience),
        (with("aud", json!("")), AccessTokenVerificationError::Audience),
        (with("aud", json!([])), AccessTokenVerificationError::Audience),
        (with("aud", json!(null)), AccessTokenVerificationError::Claims),
        (with("aud", json!({ "pay": true })), AccessTokenVerificationError::Claims),
        (without("aud"), AccessTokenVerificationError::Claims),
        (without("exp"), AccessTokenVerificationError::Claims),
        (with("exp", json!(format!("{}", NOW + 300))), AccessTokenVerificationError::Claims),
        (with("exp", json!(-1)), AccessTokenVerificationError::Claims),
        (with("exp", json!(1e300)), AccessTokenVerificationError::Claims),
        (with("exp", json!(null)), AccessTokenVerificationError::Claims),
        (with("nbf", json!("now")), AccessTokenVerificationError::Claims),
        (with("nbf", json!(-1.5)), AccessTokenVerificationError::Claims),
    ] {
        assert_eq!(verify(verifier, &keys[0].sign(&changed)), Err(flaw), "{changed}");
    }
}

/// A token is valid from `leeway` before its `nbf` to `leeway` after its `exp`, also when it is in the cache.
#[test]
fn token_counts_within_its_time() {
    let KnownIssuer { keys, verifier } = &*KNOWN;
    let at = |token: &str, now| verifier.verify(token.as_bytes(), now).map(drop);
    let token = keys[0].sign(&claims());
    for (now, found) in [
        (NOW - 10 - LEEWAY - 1, Err(AccessTokenVerificationError::NotYetValid)),
        (NOW - 10 - LEEWAY, Ok(())),
        (NOW + 300 + LEEWAY - 1, Ok(())),
        (NOW + 300 + LEEWAY, Err(AccessTokenVerificationError::Expired)),
        (NOW, Ok(())),
        (NOW - 10 - LEEWAY - 1, Err(AccessTokenVerificationError::NotYetValid)),
        (u64::MAX, Err(AccessTokenVerificationError::Expired)),
        (0, Err(AccessTokenVerificationError::NotYetValid)),
    ] {
        assert_eq!(at(&token, now), found, "{now}");
    }
    // A fraction of a second in a claim does not make the token valid for a further second.
    let fraction = keys[0].sign(&with("exp", json!(1_800_000_000.9)));
    assert_eq!(at(&fraction, NOW + LEEWAY - 1), Ok(()));
    assert_eq!(at(&fraction, NOW + LEEWAY), Err(AccessTokenVerificationError::Expired));
    let begins = keys[0].sign(&with("nbf", json!(1_800_000_000.1)));
    assert_eq!(at(&begins, NOW - LEEWAY), Err(AccessTokenVerificationError::NotYetValid));
    assert_eq!(at(&begins, NOW - LEEWAY + 1), Ok(()));
    assert_eq!(at(&keys[0].sign(&without("nbf")), 1), Ok(()), "it says nothing of a beginning");
}

/// A token of an unknown key that has expired, or is not valid yet, is refused for its time: no key would make it
/// valid, so no request waits for one.
#[test]
fn time_is_checked_before_key_is_awaited() {
    let KnownIssuer { verifier, .. } = &*KNOWN;
    let stranger = IssuerKey::es256("stranger");
    for (changed, flaw) in [
        (with("exp", json!(NOW - LEEWAY)), AccessTokenVerificationError::Expired),
        (with("nbf", json!(NOW + LEEWAY + 1)), AccessTokenVerificationError::NotYetValid),
        (with("exp", json!("soon")), AccessTokenVerificationError::Claims),
        (without("exp"), AccessTokenVerificationError::Claims),
        (claims(), AccessTokenVerificationError::UnknownKey { issuer: 0 }),
    ] {
        assert_eq!(verify(verifier, &stranger.sign(&changed)), Err(flaw), "{changed}");
    }
}

/// Claims that two readers could read differently are refused although they are signed.
#[test]
fn ambiguous_claims_are_refused() {
    let KnownIssuer { keys, verifier } = &*KNOWN;
    let key = &keys[2];
    for (text, flaw) in [
        (claims().to_string().replacen('{', "{\"sub\":\"other\",", 1), AccessTokenVerificationError::Claims),
        (
            claims().to_string().replacen('{', "{\"Sub\":\"other\",", 1),
            AccessTokenVerificationError::AmbiguousClaims,
        ),
        (
            claims().to_string().replacen('{', "{\"x\":{\"a\":1,\"a\":2},", 1),
            AccessTokenVerificationError::AmbiguousClaims,
        ),
        (claims().to_string().replacen('{', "{\"exp\":1,", 1), AccessTokenVerificationError::Claims),
        (claims().to_string().replacen('{', "{\"iss\":\"x\",", 1), AccessTokenVerificationError::Claims),
    ] {
        let header = serde_json::to_string(&key.header()).expect("plain data");
        let message = format!("{}.{}", base64(header.as_bytes()), base64(text.as_bytes()));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key.encoding, Algorithm::EdDSA);
        let token = format!("{message}.{}", signature.expect("signed"));
        assert_eq!(verify(verifier, &token), Err(flaw), "{text}");
    }
}

/// A token above the largest length is refused before it is parsed, and a short token with deep nesting is refused as
/// malformed.
#[test]
fn huge_token_is_refused_unparsed() {
    let KnownIssuer { keys, verifier } = &*KNOWN;
    let padded = |length: usize| keys[0].sign(&with("x", json!("y".repeat(length))));
    let fits = padded(5_400);
    assert!(fits.len() <= LONGEST_ACCESS_TOKEN);
    assert_eq!(verify(verifier, &fits), Ok(()));
    assert_eq!(verify(verifier, &padded(6_200)), Err(AccessTokenVerificationError::TooLong));
    assert_eq!(
        verify(verifier, &"a".repeat(LONGEST_ACCESS_TOKEN + 1)),
        Err(AccessTokenVerificationError::TooLong)
    );
    let nested = base64("[".repeat(2_000).as_bytes());
    assert_eq!(verify(verifier, &format!("{nested}.{nested}.")), Err(AccessTokenVerificationError::Claims));
    let nested =
        base64(format!("{{\"iss\":\"{ISSUER}\",\"x\":{}1{}}}", "[".repeat(200), "]".repeat(200)).as_bytes());
    assert!(verify(verifier, &format!("{nested}.{nested}.AAAA")).is_err());
}

/// A token of which any character has changed is refused, also when the original is in the cache.
#[test]
fn tampered_token_is_refused() {
    let KnownIssuer { keys, verifier } = &*KNOWN;
    let good = keys[2].sign(&claims());
    assert_eq!(verify(verifier, &good), Ok(()));
    for at in 0..good.len() {
        let mut bytes = good.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        assert!(verifier.verify(&bytes, NOW).is_err(), "{at}");
    }
    for odd in [
        format!("{good}."),
        format!(".{good}"),
        format!("{good}="),
        format!("{good} "),
        good.replace('.', ".."),
    ] {
        assert!(verify(verifier, &odd).is_err(), "{odd}");
    }
}

/// A token without a `kid` is valid only if the set has exactly one key of its algorithm.
#[test]
fn unnamed_token_needs_only_key() {
    let [one, other] = [IssuerKey::es256("one"), IssuerKey::es256("other")];
    let token = |key: &IssuerKey| key.sign_with(&Header { kid: None, ..key.header() }, &claims());
    let alone = verifier_of(&ALL, &key_set(&[one.public(), IssuerKey::ed25519("ed").public()]));
    assert_eq!(verify(&alone, &token(&one)), Ok(()));
    assert_eq!(verify(&alone, &token(&other)), Err(AccessTokenVerificationError::Signature));
    let both = verifier_of(&ALL, &key_set(&[one.public(), other.public()]));
    assert_eq!(verify(&both, &token(&one)), Err(AccessTokenVerificationError::UnknownKey { issuer: 0 }));
    // A key without a `kid` cannot be named by any token.
    let mut unnamed = one.public();
    unnamed.common.key_id = None;
    let unnamed = verifier_of(&ALL, &key_set(&[unnamed]));
    assert_eq!(verify(&unnamed, &token(&one)), Ok(()));
    assert_eq!(
        verify(&unnamed, &one.sign(&claims())),
        Err(AccessTokenVerificationError::UnknownKey { issuer: 0 })
    );
}

/// Keys can be added and removed: a token of a new key is valid once the key is there, and a token of a removed key is
/// not, also when it is in the cache.
#[test]
fn keys_are_replaced() {
    let [old, new] = [IssuerKey::es256("old"), IssuerKey::ed25519("new")];
    let verifier = verifier_of(&ALL, &key_set(&[old.public()]));
    let keys = verifier.issuers()[0].keys().clone();
    let set = |all: &[Jwk]| keys.set_keys(key_set(all).as_bytes(), &"a test");
    let [of_old, of_new] = [old.sign(&claims()), new.sign(&claims())];
    let unknown = Err(AccessTokenVerificationError::UnknownKey { issuer: 0 });
    assert_eq!((verify(&verifier, &of_old), verify(&verifier, &of_new)), (Ok(()), unknown));
    set(&[old.public(), new.public()]).expect("two keys");
    assert_eq!((verify(&verifier, &of_old), verify(&verifier, &of_new)), (Ok(()), Ok(())));
    set(&[new.public()]).expect("one key");
    assert_eq!((verify(&verifier, &of_old), verify(&verifier, &of_new)), (unknown, Ok(())));
    // Another key under the same name does not make the tokens of the former key valid again.
    let posing = IssuerKey { kid: "old".into(), ..IssuerKey::es256("") };
    set(&[posing.public()]).expect("one key");
    assert_eq!(verify(&verifier, &of_old), Err(AccessTokenVerificationError::Signature));
    // A set that cannot be parsed changes nothing.
    for bad in ["", "{", "<html>", "{\"keys\": 7}"] {
        keys.set_keys(bad.as_bytes(), &"a test").expect_err(bad);
        assert_eq!(verify(&verifier, &posing.sign(&claims())), Ok(()), "{bad}");
    }
}

/// A well-formed set without a usable key revokes the last key, also for tokens that were accepted before. At the start
/// such a set is an error, because nothing was loaded yet.
#[test]
fn issuer_revokes_its_last_key() {
    let rules = || AccessTokenRules::from(&issuer(&ALL));
    let unloaded = VerifyingKeys::for_issuer(rules());
    let none = "{\"keys\": []}";
    let secret = json!({"keys": [{"kty": "oct", "kid": "s", "k": "c2VjcmV0"}]}).to_string();
    for text in [none, &secret] {
        let refused = unloaded.set_keys(text.as_bytes(), &"a test");
        assert_eq!(refused, Err(TicketJwkError::NoKeyOfAlgorithms), "{text}");
    }
    let old = IssuerKey::es256("old");
    let token = old.sign(&claims());
    let unknown = Err(AccessTokenVerificationError::UnknownKey { issuer: 0 });
    for text in [none, &secret] {
        let verifier = verifier_of(&ALL, &key_set(&[old.public()]));
        let keys = verifier.issuers()[0].keys().clone();
        assert_eq!(verify(&verifier, &token), Ok(()));
        for _ in 0..2 {
            keys.set_keys(text.as_bytes(), &"a test").expect("a sound set");
            assert_eq!(verify(&verifier, &token), unknown, "{text}");
        }
        // A plan that is loaded now gets no key from the former one, so the revoked key stays revoked.
        let next = VerifyingKeys::for_issuer(rules()).with_keys_of(&keys);
        assert_eq!(next.kids(), "");
        keys.set_keys(key_set(&[old.public()]).as_bytes(), &"a test").expect("a key");
        assert_eq!(verify(&verifier, &token), Ok(()));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jwks.json");
    fs::write(&path, key_set(&[old.public()])).expect("our own folder");
    let keys = Arc::new(VerifyingKeys::from_issuer_file(&path, rules()).expect("a key set"));
    let verifier = AccessTokenVerifier::new(vec![TrustedIssuer::new(&issuer(&ALL), keys)], Vec::new());
    assert_eq!(verify(&verifier, &token), Ok(()));
    fs::write(&path, none).expect("our own folder");
    // The file is checked once per second, so the change is seen in the next second.
    let later = verifier.verify(token.as_bytes(), NOW + 1).map(drop);
    assert_eq!(later, unknown);
    assert!(VerifyingKeys::from_issuer_file(&path, rules()).is_err());
}

/// A key set yields public keys of the listed algorithms, at most one for each `kid` and algorithm; private and
/// ambiguous keys are refused.
#[test]
fn key_set_has_only_usable_keys() {
    let [one, other] = [IssuerKey::es256("one"), IssuerKey::es256("one")];
    let rules = |algorithms: &[JwtAlgorithm]| AccessTokenRules::from(&issuer(algorithms));
    let parse = |algorithms: &[JwtAlgorithm], keys: Value| {
        VerifyingKeySet::parse_issuer(json!({ "keys": keys }).to_string().as_bytes(), &rules(algorithms))
    };
    let public = serde_json::to_value(one.public()).expect("plain data");
    let changed = |name: &str, value: Value| {
        let mut key = public.clone();
        key[name] = value;
        key
    };
    for (keys, flaw) in [
        (json!([changed("d", json!("AAAA"))]), TicketJwkError::PrivateInSet),
        (json!([public, other.public()]), TicketJwkError::Duplicate),
        (json!([changed("use", json!("enc"))]), TicketJwkError::NoKeyOfAlgorithms),
        (json!([changed("alg", json!("ES384"))]), TicketJwkError::NoKeyOfAlgorithms),
        (json!([changed("alg", json!("HS256"))]), TicketJwkError::NoKeyOfAlgorithms),
        (json!([changed("alg", json!("later"))]), TicketJwkError::NoKeyOfAlgorithms),
        (json!([changed("crv", json!("P-521"))]), TicketJwkError::NoKeyOfAlgorithms),
        (json!([changed("kty", json!("RSA"))]), TicketJwkError::NoKeyOfAlgorithms),
        (json!([changed("key_ops", json!(["encrypt"]))]), TicketJwkError::NoKeyOfAlgorithms),
        (json!([changed("kid", json!("a\nb"))]), TicketJwkError::NoKeyOfAlgorithms),
        (json!([7, null, {}, []]), TicketJwkError::NoKeyOfAlgorithms),
    ] {
        assert_eq!(parse(&ALL, keys.clone()).err(), Some(flaw), "{keys}");
    }
    assert_eq!(parse(&[JwtAlgorithm::EdDsa], json!([public])).err(), Some(TicketJwkError::NoKeyOfAlgorithms));
    // The set has one `kid` for two kinds of keys (RFC 7517, 4.5), a key that occurs twice, and a key of a later kind.
    let mut ed = IssuerKey::ed25519("one").public();
    ed.common.public_key_use = None;
    let kept = parse(&ALL, json!([public, public, ed, { "kty": "AKP", "alg": "ML-DSA-44", "pub": "AA" }]));
    assert_eq!(kept.expect("two keys").kids(), ["one", "one"]);
}

/// If two issuers have keys of one name, a token is verified only with the keys of its own issuer.
#[test]
fn each_issuer_has_own_keys() {
    let [one, other] = [IssuerKey::es256("k"), IssuerKey::es256("k")];
    let trusted = |name: &str, key: &IssuerKey| {
        let issuer = JwtIssuer { issuer: name.into(), forward: name == "one", ..issuer(&ALL) };
        let keys = VerifyingKeys::for_issuer(AccessTokenRules::from(&issuer));
        keys.set_keys(key_set(&[key.public()]).as_bytes(), &"a test").expect("a key");
        TrustedIssuer::new(&issuer, Arc::new(keys))
    };
    let verifier = AccessTokenVerifier::new(vec![trusted("one", &one), trusted("other", &other)], Vec::new());
    let token = |key: &IssuerKey, name: &str| key.sign(&with("iss", json!(name)));
    let verified =
        |token: &str| verifier.verify(token.as_bytes(), NOW).map(|token| (token.issuer, token.forward));
    assert_eq!(verified(&token(&one, "one")), Ok((0, true)));
    assert_eq!(verified(&token(&other, "other")), Ok((1, false)));
    assert_eq!(verified(&token(&one, "other")), Err(AccessTokenVerificationError::Signature));
    assert_eq!(verified(&token(&other, "one")), Err(AccessTokenVerificationError::Signature));
}

/// The file of an issuer is read again when it changes, and a file that others can write is refused.
#[test]
fn key_file_is_followed() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("jwks.json");
    let [old, new] = [IssuerKey::es256("old"), IssuerKey::es256("new")];
    fs::write(&path, key_set(&[old.public()])).expect("our own folder");
    let rules = || AccessTokenRules::from(&issuer(&ALL));
    let keys = Arc::new(VerifyingKeys::from_issuer_file(&path, rules()).expect("a key set"));
    let trusted = TrustedIssuer::new(&issuer(&ALL), keys);
    let verifier = AccessTokenVerifier::new(vec![trusted], Vec::new());
    assert_eq!(verify(&verifier, &old.sign(&claims())), Ok(()));
    fs::write(&path, key_set(&[old.public(), new.public()])).expect("our own folder");
    // The new key is found in the same second, because its token names an unknown key.
    assert_eq!(verify(&verifier, &new.sign(&claims())), Ok(()));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("our own file");
    assert!(VerifyingKeys::from_issuer_file(&path, rules()).is_err());
}

/// Keys that were fetched for another plan are used until they are fetched again, by the rules of the new plan.
#[test]
fn keys_outlive_plan() {
    let [ec, ed] = [IssuerKey::es256("ec"), IssuerKey::ed25519("ed")];
    let before = VerifyingKeys::for_issuer(AccessTokenRules::from(&issuer(&ALL)));
    before.set_keys(key_set(&[ec.public(), ed.public()]).as_bytes(), &"a test").expect("two keys");
    let narrower = JwtIssuer { audiences: vec!["book".into()], ..issuer(&[JwtAlgorithm::Es256]) };
    let after = VerifyingKeys::for_issuer(AccessTokenRules::from(&narrower)).with_keys_of(&before);
    let verifier = AccessTokenVerifier::new(vec![TrustedIssuer::new(&narrower, Arc::new(after))], Vec::new());
    assert_eq!(verify(&verifier, &ec.sign(&with("aud", json!("book")))), Ok(()));
    assert_eq!(verify(&verifier, &ec.sign(&claims())), Err(AccessTokenVerificationError::Audience));
    let unknown = Err(AccessTokenVerificationError::UnknownKey { issuer: 0 });
    assert_eq!(verify(&verifier, &ed.sign(&with("aud", json!("book")))), unknown);
}

proptest! {
    /// Any bytes are refused as a token and as a key set, and never cause a panic.
    #[test]
    fn garbage_is_refused(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..600),
            "[A-Za-z0-9_.=-]{0,600}".prop_map(String::into_bytes),
        ],
        header in ".{0,80}",
        payload in ".{0,80}",
    ) {
        let KnownIssuer { keys, verifier } = &*KNOWN;
        prop_assert!(verifier.verify(&bytes, NOW).is_err());
        prop_assert!(VerifyingKeySet::parse_issuer(&bytes, &AccessTokenRules::from(&issuer(&ALL))).is_err());
        let good = keys[0].sign(&claims());
        let [head, body, signature] = *good.split('.').collect::<Vec<_>>() else { panic!("three parts") };
        for text in [
            format!("{}.{body}.{signature}", base64(header.as_bytes())),
            format!("{head}.{}.{signature}", base64(payload.as_bytes())),
        ] {
            prop_assert!(verifier.verify(text.as_bytes(), NOW).is_err());
        }
    }

    /// No access token that is signed with the secret of tickets, or with a part of it, is valid.
    #[test]
    fn secret_signs_no_token(length in 0_usize..80) {
        let KnownIssuer { verifier, .. } = &*KNOWN;
        let secret = SharedSecret::generate(&SystemRandomness);
        let key = EncodingKey::from_secret(&secret.bytes()[..length.min(secret.bytes().len())]);
        let token = encode(&Header::new(Algorithm::HS256), &claims(), &key).expect("signed");
        prop_assert!(verify(verifier, &token).is_err());
    }
}
