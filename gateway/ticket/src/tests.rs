//! Tests of the guarantees of tickets, with real keys and without a clock.

mod forged_tickets;
mod rotation;
mod validity;

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_process::randomness::SystemRandomness;
use tempfile::TempDir;

use super::{
    jwks::{self, PublicKey},
    key_set::VerifyingKeySet,
    keys::{SharedSecret, SigningKeyPair},
    *,
};

/// The time of the tests, in seconds since 1970: a moment in January 2027.
const NOW: u64 = 1_800_000_000;
const OURS: &str = "00112233445566778899aabbccddeeff";

fn claims() -> TicketClaims {
    TicketClaims {
        keys: vec!["account/a".into(), "account/b".into()],
        // The epoch is above 2^53, where floats become inexact.
        tenure: token(0),
        mode: LockMode::Exclusive,
        era: 7,
        ensemble: OURS.into(),
        issuer: "gateway-1".into(),
        origin: Some(TenureHolder { process: "a-process".into(), member: "gateway-1-00".into() }),
    }
}

fn token(dispatch: u32) -> FencingToken {
    FencingToken::new(i64::MAX as u64, 3, dispatch).expect("below 2^63")
}

fn key_pair() -> SigningKeyPair {
    SigningKeyPair::generate(&SystemRandomness)
}

/// A folder with a key set in `keys.json`.
struct KeySetFolder {
    folder: TempDir,
}

impl KeySetFolder {
    fn with_keys(pairs: &[&SigningKeyPair]) -> Self {
        let keys = Self { folder: TempDir::new().expect("a folder") };
        keys.publish(pairs);
        keys
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("keys.json")
    }

    fn publish(&self, pairs: &[&SigningKeyPair]) {
        let public: Vec<&PublicKey> = pairs.iter().map(|pair| pair.public()).collect();
        self.write(&jwks::render_key_set(&public).expect("different keys"));
    }

    fn write(&self, text: &str) {
        fs::write(self.file(), text).expect("the folder can be written");
    }

    fn verifier(&self) -> TicketVerifier {
        TicketVerifier::from_jwks_file(&self.file()).expect("good keys")
    }
}

fn signed(pair: &SigningKeyPair) -> String {
    TicketSigner::with_key(pair).sign(&claims(), NOW)
}

fn verify(verifier: &TicketVerifier, ticket: &str) -> Result<(), TicketVerificationError> {
    verifier.verify(ticket.as_bytes(), OURS, NOW).map(drop)
}

/// A verified ticket has the claims that were signed, and its verification is cached.
#[test]
fn signed_ticket_verifies_with_same_claims() {
    let pair = key_pair();
    let verifier = KeySetFolder::with_keys(&[&pair]).verifier();
    let ticket = signed(&pair);
    let read = verifier.verify(ticket.as_bytes(), OURS, NOW).expect("good");
    assert_eq!((&read.claims, read.issued, read.expires), (&claims(), NOW, NOW + VALID));
    let again = verifier.verify(ticket.as_bytes(), OURS, NOW).expect("good");
    assert!(std::sync::Arc::ptr_eq(&read, &again), "checked once");

    let bare = TicketClaims { mode: LockMode::Shared, ..claims() };
    let ticket = TicketSigner::with_key(&pair).sign(&bare, NOW);
    assert_eq!(verifier.verify(ticket.as_bytes(), OURS, NOW).expect("good").claims, bare);
}

/// Several threads can share a verifier and a ticket while the key file is written again.
#[test]
fn threads_share_verifier_and_ticket() {
    let pair = key_pair();
    let keys = KeySetFolder::with_keys(&[&pair]);
    let verifier = keys.verifier();
    let ticket = TenureTicket::new(TicketSigner::with_key(&pair).into(), claims());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let verifier = &verifier;
            let ticket = &ticket;
            let keys = &keys;
            let pair = &pair;
            scope.spawn(move || {
                for now in (NOW..NOW + 600).step_by(7) {
                    if thread == 0 {
                        keys.publish(&[pair]);
                    }
                    // A file that is half written is a bad file, so it changes nothing.
                    let read = verifier.verify(ticket.text(now).as_bytes(), OURS, now);
                    assert_eq!(read.map(|read| read.claims.clone()), Ok(claims()));
                }
            });
        }
    });
    // This only checks that the future can be spawned on a runtime with several threads.
    fn assert_send(_: impl Send) {}
    assert_send(verifier.keys().wait_for_unknown_key());
}

/// A ticket with more keys than any request may have, or with longer keys, is refused.
#[test]
fn oversized_claims_are_refused() {
    let pair = key_pair();
    for (count, length) in [(ResourceKey::MOST_IN_SET + 1, 2), (ResourceKey::MOST_IN_SET, 129)] {
        let keys = (0..count).map(|number| format!("{number:0length$}")).collect();
        let ticket = TicketSigner::with_key(&pair).sign(&TicketClaims { keys, ..claims() }, NOW);
        assert!(verify(&KeySetFolder::with_keys(&[&pair]).verifier(), &ticket).is_err(), "{count} {length}");
    }
}

/// A ticket with the most and longest keys is not too long to be verified.
#[test]
fn largest_claims_fit_into_ticket() {
    let pair = key_pair();
    for count in [16, ResourceKey::MOST_IN_SET] {
        let length = ResourceKey::MOST_BYTES_IN_SET / count;
        let keys = (0..count).map(|number| format!("{}{number:02}", "\"".repeat(length - 2))).collect();
        let ticket = TicketSigner::with_key(&pair).sign(&TicketClaims { keys, ..claims() }, NOW);
        assert_eq!(
            verify(&KeySetFolder::with_keys(&[&pair]).verifier(), &ticket),
            Ok(()),
            "{} bytes",
            ticket.len()
        );
    }
}

/// A ticket covers any dispatch of its tenure, and no other keys, mode or tenure.
#[test]
fn ticket_covers_only_its_grant() {
    let pair = key_pair();
    let verifier = KeySetFolder::with_keys(&[&pair]).verifier();
    let read = verifier.verify(signed(&pair).as_bytes(), OURS, NOW).expect("good");
    let both = ["account/a", "account/b"];
    let exclusive = LockMode::Exclusive;
    for dispatch in [0, 1, u32::MAX] {
        assert_eq!(read.check_matches(both, token(dispatch), exclusive), Ok(()));
    }
    let no = |what| Err(TicketVerificationError::Key(what));
    for keys in [&["account/a"][..], &["account/b", "account/a"], &["account/a", "account/b", "c"], &[]] {
        assert_eq!(
            read.check_matches(keys.iter().copied(), token(1), exclusive),
            no(TicketMismatchError::Keys),
            "{keys:?}"
        );
    }
    assert_eq!(read.check_matches(both, token(1), LockMode::Shared), no(TicketMismatchError::Mode));
    let others = [(i64::MAX as u64 - 1, 3), (i64::MAX as u64, 4)];
    for other in others.map(|(epoch, sequence)| FencingToken::new(epoch, sequence, 1).expect("below 2^63")) {
        assert_eq!(read.check_matches(both, other, exclusive), no(TicketMismatchError::Tenure), "{other}");
    }
}

/// A ticket of another installation is invalid, also when it is in the cache.
#[test]
fn ticket_of_other_ensemble_is_invalid() {
    let pair = key_pair();
    let verifier = KeySetFolder::with_keys(&[&pair]).verifier();
    let ticket = signed(&pair);
    let foreign = Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Ensemble));
    assert_eq!(verifier.verify(ticket.as_bytes(), "another", NOW).map(drop), foreign);
    assert_eq!(verify(&verifier, &ticket), Ok(()));
    assert_eq!(
        verifier.verify(ticket.as_bytes(), "another", NOW).map(drop),
        foreign,
        "also when it is known"
    );
}

/// A shared secret signs and verifies tickets; one that is too short, or not plain text, is refused.
#[test]
fn shared_secret_signs_and_verifies() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("secret");
    SharedSecret::generate(&SystemRandomness).write(&file).expect("a new file");
    let signer = TicketSigner::from_secret_file(&file).expect("a secret");
    let verifier = TicketVerifier::from_secret_file(&file).expect("a secret");
    assert_eq!(verify(&verifier, &signer.sign(&claims(), NOW)), Ok(()));

    let other = TicketSigner::with_secret(&SharedSecret::generate(&SystemRandomness)).sign(&claims(), NOW);
    assert_eq!(
        verify(&verifier, &other),
        Err(TicketVerificationError::Invalid(InvalidTenureTicketError::UnknownKey))
    );

    let line = "correct horse battery staple, 32+";
    let [one, other] = [line.to_owned(), format!("{line}\r\n")]
        .map(|text| SharedSecret::parse(text.as_bytes()).expect("long enough").kid().to_owned());
    assert_eq!(one, other, "the end of the line is not part of the secret");
    for bad in
        ["x".repeat(31), format!("{}\n", "x".repeat(31)), "ä".repeat(32), "{".repeat(40), String::new()]
    {
        assert_eq!(SharedSecret::parse(bad.as_bytes()).err(), Some(TicketJwkError::Secret), "{bad:?}");
    }
}

/// The key of RFC 8037, A.1 to A.3, has the thumbprint that the RFC gives.
#[test]
fn rfc_8037_key_has_rfc_thumbprint() {
    let text = r#"{"kty":"OKP","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
        "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    let pair = SigningKeyPair::parse(text.as_bytes()).expect("a key");
    assert_eq!(pair.public().kid(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");

    let halves = text.replace("nWG", "oWG");
    assert_eq!(SigningKeyPair::parse(halves.as_bytes()).err(), Some(TicketJwkError::Halves));
    for (bad, expected) in [
        ("", TicketJwkError::Jwk { line: 1, column: 0 }),
        ("[]", TicketJwkError::Jwk { line: 1, column: 0 }),
        (&text.replace("OKP", "EC"), TicketJwkError::Kind),
        (&text.replace("Ed25519", "X25519"), TicketJwkError::Kind),
        (&text.replace("nWG", "nW"), TicketJwkError::Kind),
        (&text.replace("\"d\"", "\"D\""), TicketJwkError::OnlyPublic),
        (&text.replace("\"kty\":\"OKP\"", "\"kty\":\"OKP\",\"kid\":\"\""), TicketJwkError::Kid),
        (r#"{"kty":"oct","k":"c2VjcmV0"}"#, TicketJwkError::Shared),
        (&"s".repeat(32), TicketJwkError::Shared),
    ] {
        let found = SigningKeyPair::parse(bad.as_bytes()).expect_err(bad);
        assert!(
            found == expected
                || matches!((&found, &expected), (TicketJwkError::Jwk { .. }, TicketJwkError::Jwk { .. })),
            "{bad}: {found:?}"
        );
    }
}

/// A private key that others can read, or a key set that others can write, is refused.
#[test]
fn permissive_key_file_mode_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("key.json");
    key_pair().write(&file).expect("a new file");
    assert!(matches!(key_pair().write(&file), Err(KeyFileError::Exists { .. })));
    let set_mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("our file");
    for (mode, good) in
        [(0o600, true), (0o400, true), (0o440, true), (0o644, false), (0o604, false), (0o660, false)]
    {
        set_mode(mode);
        let read = TicketSigner::from_key_file(&file);
        assert_eq!(read.is_ok(), good, "{mode:o}");
        if let Err(error) = read {
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
    }
    let keys = KeySetFolder::with_keys(&[&key_pair()]);
    for (mode, good) in [(0o644, true), (0o666, false)] {
        fs::set_permissions(keys.file(), fs::Permissions::from_mode(mode)).expect("our file");
        assert_eq!(TicketVerifier::from_jwks_file(&keys.file()).is_ok(), good, "{mode:o}");
    }
}

/// No `Debug` text and no error message shows a private key, a shared secret or a ticket.
#[test]
fn secrets_never_appear_in_output() {
    let folder = TempDir::new().expect("a folder");
    let pair = key_pair();
    pair.write(&folder.path().join("key")).expect("a new file");
    let jwk = fs::read_to_string(folder.path().join("key")).expect("readable");
    let jwk: serde_json::Value = serde_json::from_str(&jwk).expect("JSON");
    let private = jwk["d"].as_str().expect("a private key").to_owned();
    let secret = "correct horse battery staple, 32+";
    let shared = SharedSecret::parse(secret.as_bytes()).expect("long enough");
    let ticket = TenureTicket::new(TicketSigner::with_key(&pair).into(), claims());
    let text = ticket.text(NOW).to_string();
    let shown = format!("{pair:?} {shared:?} {:?} {ticket:?}", TicketSigner::with_secret(&shared));
    let shown = format!(
        "{shown} {:?} {:?}",
        VerifyingKeySet::verifying_keys_from_secret(&shared),
        KeySetFolder::with_keys(&[&pair]).verifier()
    );
    for hidden in [&private, secret, &text] {
        assert!(!shown.contains(hidden), "{shown}");
    }
    // The parser's own message would quote the value that it cannot parse.
    let broken = format!(r#"{{"kty":"OKP","crv":"Ed25519","x":3,"d":"{private}"}}"#);
    let broken = SigningKeyPair::parse(broken.replace('3', "").as_bytes()).expect_err("no JSON");
    assert!(!format!("{broken} {broken:?}").contains(&private));
    let typed = SigningKeyPair::parse(format!("\"{private}\"").as_bytes()).expect_err("no object");
    assert!(!format!("{typed} {typed:?}").contains(&private));
}
