//! Tests of keys that are added and removed while tickets are verified.

use super::*;

#[test]
fn overlapping_keys_both_verify() {
    let old = key_pair();
    let new = key_pair();
    let verifier = KeySetFolder::with_keys(&[&old, &new]).verifier();
    assert_eq!(verify(&verifier, &signed(&old)), Ok(()));
    assert_eq!(verify(&verifier, &signed(&new)), Ok(()));
}

/// A new key of the file is used at its first ticket, even within the second of an earlier check of the
/// file.
#[test]
fn new_key_verifies_at_first_ticket() {
    let old = key_pair();
    let new = key_pair();
    let keys = KeySetFolder::with_keys(&[&old]);
    let verifier = keys.verifier();
    assert_eq!(
        verify(&verifier, &signed(&new)),
        Err(TicketVerificationError::Invalid(InvalidTenureTicketError::UnknownKey))
    );
    keys.publish(&[&old, &new]);
    // This is in the same second as the check before.
    assert_eq!(verify(&verifier, &signed(&new)), Ok(()));
    assert_eq!(verify(&verifier, &signed(&old)), Ok(()));
}

/// A ticket of a removed key is refused, also when it is in the cache.
#[test]
fn removed_key_invalidates_cached_ticket() {
    let old = key_pair();
    let new = key_pair();
    let keys = KeySetFolder::with_keys(&[&old, &new]);
    let verifier = keys.verifier();
    let ticket = signed(&old);
    assert_eq!(verify(&verifier, &ticket), Ok(()));
    keys.publish(&[&new]);
    let later = |ticket: &str| verifier.verify(ticket.as_bytes(), OURS, NOW + 1).map(drop);
    assert_eq!(later(&ticket), Err(TicketVerificationError::Invalid(InvalidTenureTicketError::UnknownKey)));
    assert_eq!(later(&signed(&new)), Ok(()));
}

/// Another key under the same id does not make the cached tickets of the former key valid.
#[test]
fn replaced_key_invalidates_cached_ticket() {
    let old = key_pair();
    let new = key_pair();
    let named = |pair: &SigningKeyPair| {
        let key = PublicKey { kid: "ours".into(), ..pair.public().clone() };
        jwks::render_key_set(&[&key]).expect("one key")
    };
    let keys = KeySetFolder::with_keys(&[]);
    keys.write(&named(&old));
    let verifier = keys.verifier();
    let signer = |pair: &SigningKeyPair| {
        let encoding = pair.encoding.clone();
        let public = PublicKey { kid: "ours".into(), ..pair.public().clone() };
        TicketSigner::with_key(&SigningKeyPair { encoding, public, seed: [0; 32] })
    };
    let ticket = signer(&old).sign(&claims(), NOW);
    assert_eq!(verify(&verifier, &ticket), Ok(()));
    keys.write(&named(&new));
    let later = verifier.verify(ticket.as_bytes(), OURS, NOW + 1).map(drop);
    assert_eq!(later, Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Signature)));
}

/// A malformed or missing key file leaves the former keys in use; a good file replaces them.
#[test]
fn bad_key_file_keeps_former_keys() {
    let old = key_pair();
    let new = key_pair();
    let keys = KeySetFolder::with_keys(&[&old]);
    let verifier = keys.verifier();
    let mut now = NOW;
    let mut later = |ticket: &str| {
        now += 1;
        verifier.verify(ticket.as_bytes(), OURS, now).map(drop)
    };
    for bad in ["", "{", "{\"keys\": []}", "{\"keys\": [{\"kty\": \"RSA\"}]}", &"x".repeat(70_000)] {
        keys.write(bad);
        assert_eq!(later(&signed(&old)), Ok(()), "{bad:.20}");
    }
    fs::remove_file(keys.file()).expect("it was there");
    assert_eq!(later(&signed(&old)), Ok(()));
    keys.publish(&[&new]);
    assert_eq!(later(&signed(&new)), Ok(()));
    assert_eq!(
        later(&signed(&old)),
        Err(TicketVerificationError::Invalid(InvalidTenureTicketError::UnknownKey))
    );
}

/// A key set has public Ed25519 keys for signatures; private, duplicate and unusable keys are refused.
#[test]
fn key_set_accepts_only_signature_keys() {
    let one = key_pair();
    let other = key_pair();
    let public = serde_json::to_value(one.public().jwk()).expect("plain data");
    let set = |keys: serde_json::Value| {
        VerifyingKeySet::parse(serde_json::json!({ "keys": keys }).to_string().as_bytes())
    };
    let with = |name: &str, value: &str| {
        let mut key = public.clone();
        key[name] = value.into();
        key
    };
    let x = other.public().jwk();
    let taken = serde_json::json!([public, { "kty": "OKP", "crv": "Ed25519",
        "x": serde_json::to_value(x).expect("plain data")["x"], "kid": one.public().kid() }]);
    for (keys, expected) in [
        (serde_json::json!([with("d", "AAAA")]), TicketJwkError::Private),
        (serde_json::json!([with("use", "enc")]), TicketJwkError::NoKey),
        (serde_json::json!([with("alg", "HS256")]), TicketJwkError::NoKey),
        (serde_json::json!([with("kty", "oct")]), TicketJwkError::NoKey),
        (serde_json::json!([with("x", "AAAA")]), TicketJwkError::Kind),
        (serde_json::json!([7, null, {}]), TicketJwkError::NoKey),
        (taken, TicketJwkError::Duplicate),
    ] {
        assert_eq!(set(keys).err(), Some(expected));
    }
    let kept = set(serde_json::json!([{ "kty": "RSA", "n": "AQAB" }, public, public])).expect("one good key");
    assert_eq!(kept.kids(), [one.public().kid()]);
    assert_eq!(jwks::render_key_set(&[one.public(), one.public()]), jwks::render_key_set(&[one.public()]));
}
