//! A text without a valid signature is refused, whatever it looks like.

use std::sync::LazyLock;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{claims::TYPE, jwks::encode_base64url as base64};

fn payload() -> Value {
    json!({
        "v": 1, "keys": ["account/a", "account/b"], "e": "9223372036854775807", "s": 3, "mode": "exclusive",
        "era": 7, "ensemble": OURS, "iss": "gateway-1", "iat": NOW, "exp": NOW + VALID,
    })
}

fn header(algorithm: Algorithm, kid: &str) -> Header {
    let mut header = Header::new(algorithm);
    (header.typ, header.kid) = (Some(TYPE.into()), Some(kid.into()));
    header
}

fn signed_by(pair: &SigningKeyPair, header: &Header, payload: &Value) -> String {
    encode(header, payload, &pair.encoding).expect("signed")
}

fn parts(ticket: &str) -> [String; 3] {
    let parts: Vec<_> = ticket.split('.').map(str::to_owned).collect();
    parts.try_into().expect("three parts")
}

fn joined(parts: &[String; 3]) -> String {
    parts.join(".")
}

/// A ticket of which any character has changed is invalid, also when the original is in the cache.
#[test]
fn tampered_ticket_is_invalid() {
    let pair = key_pair();
    let verifier = KeySetFolder::with_keys(&[&pair]).verifier();
    let good = signed(&pair);
    let richer = TicketClaims { keys: vec!["account/c".into()], ..claims() };
    let other = parts(&TicketSigner::with_key(&pair).sign(&richer, NOW));
    let [head, _, signature] = parts(&good);
    let tampered = joined(&[head.clone(), other[1].clone(), signature.clone()]);
    assert_eq!(
        verify(&verifier, &tampered),
        Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Signature))
    );
    let cut = joined(&[head, parts(&good)[1].clone(), String::new()]);
    assert_eq!(
        verify(&verifier, &cut),
        Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Signature))
    );
    // Every changed character makes the ticket invalid, even when the original is in the cache.
    assert_eq!(verify(&verifier, &good), Ok(()));
    for at in 0..good.len() {
        let mut bytes = good.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let refused = verifier.verify(&bytes, OURS, NOW).expect_err("changed");
        assert!(matches!(refused, TicketVerificationError::Invalid(_)), "{at}: {refused:?}");
    }
}

/// A ticket signed with another algorithm than that of the key is invalid, also with the public key as secret.
#[test]
fn algorithm_must_match_key() {
    let pair = key_pair();
    let verifier = KeySetFolder::with_keys(&[&pair]).verifier();
    let kid = pair.public().kid();
    // A known attack: an HMAC whose secret is the public key, which everybody has.
    let public = base64(&pair.public().x);
    for secret in [&pair.public().x[..], public.as_bytes()] {
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            let key = EncodingKey::from_secret(secret);
            let text = encode(&header(algorithm, kid), &payload(), &key).expect("signed");
            let refused = verifier.verify(text.as_bytes(), OURS, NOW).map(drop);
            assert_eq!(
                refused,
                Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Algorithm)),
                "{algorithm:?}"
            );
        }
    }
    // A ticket that is signed with EdDSA is no ticket for a verifier with a shared secret either.
    let secret = SharedSecret::generate(&SystemRandomness);
    let folder = TempDir::new().expect("a folder");
    secret.write(&folder.path().join("secret")).expect("a new file");
    let shared = TicketVerifier::from_secret_file(&folder.path().join("secret")).expect("a secret");
    let ticket = signed_by(&pair, &header(Algorithm::EdDSA, secret.kid()), &payload());
    assert_eq!(
        verify(&shared, &ticket),
        Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Algorithm))
    );
}

#[test]
fn algorithm_none_is_refused() {
    let pair = key_pair();
    let verifier = KeySetFolder::with_keys(&[&pair]).verifier();
    for name in ["none", "None", "NONE", "", "EdDSA "] {
        let header = json!({ "alg": name, "typ": TYPE, "kid": pair.public().kid() }).to_string();
        let [head, body] = [header, payload().to_string()].map(|part| base64(part.as_bytes()));
        for signature in [String::new(), parts(&signed(&pair))[2].clone()] {
            let ticket = joined(&[head.clone(), body.clone(), signature]);
            assert_eq!(
                verify(&verifier, &ticket),
                Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Format)),
                "{name}"
            );
        }
    }
}

/// A ticket signed with a foreign key is invalid, also under the id of a trusted key or with its own key in the
/// header.
#[test]
fn foreign_key_is_refused() {
    let ours = key_pair();
    let stranger = key_pair();
    let verifier = KeySetFolder::with_keys(&[&ours]).verifier();
    assert_eq!(
        verify(&verifier, &signed(&stranger)),
        Err(TicketVerificationError::Invalid(InvalidTenureTicketError::UnknownKey))
    );
    let posing = signed_by(&stranger, &header(Algorithm::EdDSA, ours.public().kid()), &payload());
    assert_eq!(
        verify(&verifier, &posing),
        Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Signature))
    );
    // Here the forger puts its own key into the header.
    let mut bringing = header(Algorithm::EdDSA, stranger.public().kid());
    bringing.jwk = serde_json::from_value(serde_json::to_value(stranger.public().jwk()).expect("data")).ok();
    assert!(bringing.jwk.is_some());
    let brought = signed_by(&stranger, &bringing, &payload());
    assert_eq!(
        verify(&verifier, &brought),
        Err(TicketVerificationError::Invalid(InvalidTenureTicketError::UnknownKey))
    );
}

/// A signed token with another type, no key id or a critical header is no ticket.
#[test]
fn other_jwt_is_no_ticket() {
    let pair = key_pair();
    let verifier = KeySetFolder::with_keys(&[&pair]).verifier();
    let good = header(Algorithm::EdDSA, pair.public().kid());
    assert_eq!(verify(&verifier, &signed_by(&pair, &good, &payload())), Ok(()), "the pattern is good");
    for (header, flaw) in [
        (Header { typ: Some("JWT".into()), ..good.clone() }, InvalidTenureTicketError::Type),
        (Header { typ: None, ..good.clone() }, InvalidTenureTicketError::Type),
        (Header { kid: None, ..good.clone() }, InvalidTenureTicketError::UnknownKey),
        (Header { crit: Some(vec!["b64".into()]), ..good.clone() }, InvalidTenureTicketError::Critical),
    ] {
        assert_eq!(
            verify(&verifier, &signed_by(&pair, &header, &payload())),
            Err(TicketVerificationError::Invalid(flaw))
        );
    }
}

/// Claims that are malformed, missing or repeated are refused although they are signed; unknown claims are ignored.
#[test]
fn signed_but_malformed_claims_are_refused() {
    let pair = key_pair();
    let verifier = KeySetFolder::with_keys(&[&pair]).verifier();
    let header = header(Algorithm::EdDSA, pair.public().kid());
    let many: Vec<String> = (10..75).map(|number| format!("key/{number}")).collect();
    for (name, value, flaw) in [
        ("v", json!(2), InvalidTenureTicketError::Version),
        ("keys", json!([]), InvalidTenureTicketError::Claims),
        ("keys", json!(["b", "a"]), InvalidTenureTicketError::Claims),
        ("keys", json!(["a", "a"]), InvalidTenureTicketError::Claims),
        ("keys", json!(["a", ""]), InvalidTenureTicketError::Claims),
        ("keys", json!(["a\nb"]), InvalidTenureTicketError::Claims),
        ("keys", json!(many), InvalidTenureTicketError::Claims),
        ("keys", json!("a"), InvalidTenureTicketError::Claims),
        ("e", json!("9223372036854775808"), InvalidTenureTicketError::Claims),
        ("e", json!("18446744073709551616"), InvalidTenureTicketError::Claims),
        ("e", json!(5), InvalidTenureTicketError::Claims),
        ("e", json!("05"), InvalidTenureTicketError::Claims),
        ("e", json!("+5"), InvalidTenureTicketError::Claims),
        ("e", json!("-5"), InvalidTenureTicketError::Claims),
        ("e", json!("1e3"), InvalidTenureTicketError::Claims),
        ("s", json!(4_294_967_296_u64), InvalidTenureTicketError::Claims),
        ("s", json!(1.5), InvalidTenureTicketError::Claims),
        ("mode", json!("Exclusive"), InvalidTenureTicketError::Claims),
        ("era", json!(-1), InvalidTenureTicketError::Claims),
        ("iss", json!("\u{1b}[2J"), InvalidTenureTicketError::Claims),
        ("iss", Value::Null, InvalidTenureTicketError::Claims),
        ("iss", json!(""), InvalidTenureTicketError::Claims),
        ("exp", json!(NOW), InvalidTenureTicketError::Lifetime),
        ("exp", json!(NOW - 1), InvalidTenureTicketError::Lifetime),
        ("exp", json!(NOW + VALID + 1), InvalidTenureTicketError::Lifetime),
        ("exp", json!(u64::MAX), InvalidTenureTicketError::Lifetime),
        ("iat", json!(0), InvalidTenureTicketError::Lifetime),
        ("nbf", json!(NOW + LEEWAY + 1), InvalidTenureTicketError::Future),
        ("aud", json!("somebody else"), InvalidTenureTicketError::Claims),
    ] {
        let mut changed = payload();
        changed[name] = value.clone();
        let refused = verify(&verifier, &signed_by(&pair, &header, &changed));
        assert_eq!(refused, Err(TicketVerificationError::Invalid(flaw)), "{name}: {value}");
    }
    for name in ["v", "keys", "e", "s", "mode", "era", "ensemble", "iss", "iat", "exp"] {
        let mut changed = payload();
        changed.as_object_mut().expect("an object").remove(name);
        let refused = verify(&verifier, &signed_by(&pair, &header, &changed));
        assert_eq!(
            refused,
            Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Claims)),
            "without {name}"
        );
    }
    // One claim occurs twice, so two readers could use different values (RFC 7519, 4).
    let twice = payload().to_string().replacen('{', "{\"era\":8,", 1);
    let head = parts(&signed(&pair))[0].clone();
    let message = format!("{head}.{}", base64(twice.as_bytes()));
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &pair.encoding, Algorithm::EdDSA);
    let ticket = format!("{message}.{}", signature.expect("signed"));
    assert_eq!(
        verify(&verifier, &ticket),
        Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Claims))
    );
    // Unknown claims are ignored.
    let mut more = payload();
    more["later"] = json!({ "x": [1, 2] });
    assert_eq!(verify(&verifier, &signed_by(&pair, &header, &more)), Ok(()));
}

/// A text above the largest length is refused before it is parsed, and deep nesting is refused as malformed.
#[test]
fn oversized_ticket_is_refused_unparsed() {
    let verifier = KeySetFolder::with_keys(&[&key_pair()]).verifier();
    let refused = verifier.verify(&vec![b'A'; LONGEST + 1], OURS, NOW).map(drop);
    assert_eq!(refused, Err(TicketVerificationError::Invalid(InvalidTenureTicketError::TooLong)));
    let nested = base64("[".repeat(20_000).as_bytes());
    let refused = verifier.verify(format!("{nested}.e30.").as_bytes(), OURS, NOW).map(drop);
    assert_eq!(refused, Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Format)));
}

/// A key, and a verifier that trusts it.
static KNOWN: LazyLock<(SigningKeyPair, TicketVerifier)> = LazyLock::new(|| {
    let pair = key_pair();
    let set = VerifyingKeySet::parse(jwks::render_key_set(&[pair.public()]).expect("one key").as_bytes())
        .expect("good");
    (pair, TicketVerifier::from_set(set))
});

prop_compose! {
    fn any_claims()(
        keys in prop::collection::btree_set("[!-~]{1,20}", 1..=16),
        (epoch, sequence, era, shared) in (0..=i64::MAX as u64, any::<u32>(), any::<u64>(), any::<bool>()),
        issuer in "[^\\p{Cc}]{1,20}",
        origin in prop::option::of(("[^\\p{Cc}]{1,20}", "[^\\p{Cc}]{1,20}")),
    ) -> TicketClaims {
        TicketClaims {
            keys: keys.into_iter().collect(),
            tenure: FencingToken::new(epoch, sequence, 0).expect("below 2^63"),
            mode: if shared { LockMode::Shared } else { LockMode::Exclusive },
            era,
            ensemble: OURS.into(),
            issuer,
            origin: origin.map(|(process, member)| TenureHolder { process, member }),
        }
    }
}

proptest! {
    /// Any bytes are an invalid ticket and never cause a panic.
    #[test]
    fn garbage_ticket_is_invalid(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..600),
            "[A-Za-z0-9_.=-]{0,600}".prop_map(String::into_bytes),
        ],
    ) {
        static VERIFIER: LazyLock<TicketVerifier> =
            LazyLock::new(|| TicketVerifier::from_set(VerifyingKeySet::verifying_keys_from_secret(&SharedSecret::generate(&SystemRandomness))));
        let refused = VERIFIER.verify(&bytes, OURS, NOW).map(drop);
        prop_assert!(matches!(refused.expect_err("nobody signed it"), TicketVerificationError::Invalid(_)));
    }

    /// A garbled header or payload is an invalid ticket and never causes a panic.
    #[test]
    fn garbled_header_or_payload_is_invalid(header in ".{0,80}", payload in ".{0,80}") {
        let (pair, verifier) = &*KNOWN;
        let texts = [
            format!("{}.{}.AAAA", base64(header.as_bytes()), base64(payload.as_bytes())),
            format!("{}.{}.AAAA", parts(&signed(pair))[0], base64(payload.as_bytes())),
        ];
        for text in texts {
            let refused = verifier.verify(text.as_bytes(), OURS, NOW).map(drop);
            prop_assert!(matches!(refused.expect_err("nobody signed it"), TicketVerificationError::Invalid(_)));
        }
    }

    /// The claims of any tenure are read exactly as they were signed, and no character of the ticket can be changed.
    #[test]
    fn any_claims_roundtrip_and_resist_change(
        claims in any_claims(),
        at: prop::sample::Index,
        other in "[A-Za-z0-9_-]",
    ) {
        let (pair, verifier) = &*KNOWN;
        let ticket = TicketSigner::with_key(pair).sign(&claims, NOW);
        let read = verifier.verify(ticket.as_bytes(), OURS, NOW).map(|read| read.claims.clone());
        prop_assert_eq!(read, Ok(claims));
        let at = at.index(ticket.len());
        let mut changed = ticket.clone();
        changed.replace_range(at..=at, &other);
        if changed != ticket {
            let refused = verifier.verify(changed.as_bytes(), OURS, NOW).map(drop);
            prop_assert!(matches!(refused.expect_err("nobody signed it"), TicketVerificationError::Invalid(_)));
        }
    }

    /// Any bytes are refused as a key or key set and never cause a panic.
    #[test]
    fn garbage_key_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,200}") {
        for bytes in [&bytes[..], text.as_bytes()] {
            prop_assert!(SigningKeyPair::parse(bytes).is_err());
            prop_assert!(VerifyingKeySet::parse(bytes).is_err());
            drop(SharedSecret::parse(bytes));
        }
    }
}
