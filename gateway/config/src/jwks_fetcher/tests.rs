//! Tests that the verifier keeps its valid keys, whatever the URL returns.

use std::sync::atomic::{AtomicUsize, Ordering};

use fencegate_policies::{plan::LockMode, token::FencingToken};
use fencegate_process::{clock::ManualClock, randomness::SystemRandomness};
use fencegate_ticket::{
    InvalidTenureTicketError, TicketClaims, TicketSigner, TicketVerificationError, TicketVerifier,
    VerifyingKeysUnavailableError,
    jwks::{self, PublicKey},
    keys::SigningKeyPair,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    runtime,
    sync::watch,
    task::LocalSet,
};

use super::*;

/// The moment at which tickets are signed and verified, in seconds since 1970.
const NOW: u64 = 1_800_000_000;
const OURS: &str = "00112233445566778899aabbccddeeff";

fn signing_pair() -> SigningKeyPair {
    SigningKeyPair::generate(&SystemRandomness)
}

fn signed_ticket(pair: &SigningKeyPair) -> String {
    let claims = TicketClaims {
        keys: vec!["account/a".into()],
        tenure: FencingToken::new(7, 3, 0).expect("below 2^63"),
        mode: LockMode::Exclusive,
        era: 7,
        ensemble: OURS.into(),
        issuer: "gateway-1".into(),
        origin: None,
    };
    TicketSigner::with_key(pair).sign(&claims, NOW)
}

fn verify(verifier: &TicketVerifier, ticket: &str) -> Result<(), TicketVerificationError> {
    verifier.verify(ticket.as_bytes(), OURS, NOW).map(drop)
}

/// A server that gives every client the same response. If the response is empty, it does not respond.
struct FakeJwksServer {
    answer: watch::Sender<Vec<u8>>,
    url: String,
    asked: Arc<AtomicUsize>,
}

impl FakeJwksServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/keys?of=tickets", listener.local_addr().expect("bound"));
        let (answer, given) = watch::channel(Vec::new());
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        tokio::task::spawn_local(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let answer = given.borrow().clone();
                tokio::task::spawn_local(async move {
                    let mut request = vec![0; 4096];
                    let read = stream.read(&mut request).await.unwrap_or(0);
                    assert!(request[..read].starts_with(b"GET /keys?of=tickets HTTP/1.1\r\n"));
                    if answer.is_empty() {
                        std::future::pending::<()>().await;
                    }
                    // The client may disconnect in the middle of a large response.
                    drop(stream.write_all(&answer).await);
                });
            }
        });
        Self { answer, url, asked }
    }

    fn set_answer(&self, status: &str, body: &str) {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.answer.send_replace(answer.into());
    }

    fn publish_keys(&self, pairs: &[&SigningKeyPair]) {
        let public: Vec<&PublicKey> = pairs.iter().map(|pair| pair.public()).collect();
        self.set_answer("200 OK", &jwks::render_key_set(&public).expect("different keys"));
    }
}

/// Makes a verifier of tickets, and the fetcher of its keys.
fn remote_verifier(url: &str, pace: JwksRefreshPolicy) -> (TicketVerifier, JwksFetcher) {
    let verifier = TicketVerifier::without_keys();
    let remote = JwksFetcher::new(url, pace, None, verifier.keys().clone()).expect("a URL");
    (verifier, remote)
}

#[test]
fn refresh_future_is_send() {
    fn assert_send(_: impl Send) {}
    let (_, remote) = remote_verifier("http://localhost/", HASTY);
    assert_send(async move { remote.run_refresh_loop().await });
}

fn run(test: impl Future) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new()
        .block_on(&runtime, async { timeout(Duration::from_secs(60), test).await.expect("in time") });
}

const HASTY: JwksRefreshPolicy = JwksRefreshPolicy {
    every: Duration::from_secs(3600),
    least: Duration::from_millis(20),
    patience: Duration::from_millis(300),
};

/// A response that is no key set leaves the old keys; a valid key set replaces them, so keys that it leaves out are
/// unknown.
#[test]
fn bad_response_keeps_old_keys() {
    run(async {
        let server = FakeJwksServer::start().await;
        let old = signing_pair();
        let new = signing_pair();
        let (verifier, remote) = remote_verifier(&server.url, HASTY);
        let verifier = &verifier;
        assert_eq!(
            verify(verifier, &signed_ticket(&old)),
            Err(TicketVerificationError::Invalid(InvalidTenureTicketError::UnknownKey)),
            "no key yet"
        );
        server.publish_keys(&[&old]);
        remote.fetch().await.expect("a key set");
        assert_eq!(verify(verifier, &signed_ticket(&old)), Ok(()));
        let large = format!("{{\"keys\": [], \"x\": \"{}\"}}", "x".repeat(64 * 1024));
        let other = jwks::render_key_set(&[new.public()]).expect("one key");
        for (status, body) in [
            ("500 Internal Server Error", &*other),
            ("302 Found", &other),
            ("200 OK", "<html>"),
            ("200 OK", "{\"keys\": []}"),
            ("200 OK", &large),
        ] {
            server.set_answer(status, body);
            remote.fetch().await.expect_err(status);
            assert_eq!(verify(verifier, &signed_ticket(&old)), Ok(()), "{status}");
        }
        for raw in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "\0\0\0\0\r\n\r\n"] {
            server.answer.send_replace(raw.into());
            remote.fetch().await.expect_err(raw);
            assert_eq!(verify(verifier, &signed_ticket(&old)), Ok(()), "{raw}");
        }
        server.publish_keys(&[&new]);
        remote.fetch().await.expect("a key set");
        assert_eq!(verify(verifier, &signed_ticket(&new)), Ok(()));
        assert_eq!(
            verify(verifier, &signed_ticket(&old)),
            Err(TicketVerificationError::Invalid(InvalidTenureTicketError::UnknownKey)),
            "known, and removed"
        );
    });
}

/// A ticket that names an unknown key causes a fetch soon, but at most one in each `least` interval.
#[test]
fn unknown_key_fetches_are_limited() {
    run(async {
        let server = FakeJwksServer::start().await;
        let old = signing_pair();
        let new = signing_pair();
        server.publish_keys(&[&old]);
        let least = Duration::from_millis(300);
        let (verifier, remote) = remote_verifier(&server.url, JwksRefreshPolicy { least, ..HASTY });
        tokio::task::spawn_local(async move { remote.run_refresh_loop().await });
        let until_good = async |ticket: &str| {
            while verify(&verifier, ticket).is_err() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        until_good(&signed_ticket(&old)).await;
        server.publish_keys(&[&old, &new]);
        let begun = Instant::now();
        until_good(&signed_ticket(&new)).await;
        // Expected are the first fetch, the one for the unknown key, and on a slow machine at most one more for each
        // interval.
        let asked = server.asked.load(Ordering::SeqCst);
        let most = 2 + begun.elapsed().as_millis() / least.as_millis();
        assert!((2..=most).contains(&(asked as u128)), "{asked} of {most}");
    });
}

/// A wait for the keys ends with the next fetch that begins after it, and with an error if that fetch has failed.
#[test]
fn waiting_ends_with_next_fetch() {
    run(async {
        let server = FakeJwksServer::start().await;
        let key = signing_pair();
        server.publish_keys(&[&key]);
        let (verifier, remote) = remote_verifier(&server.url, HASTY);
        let keys = verifier.keys().clone();
        tokio::task::spawn_local(async move { remote.run_refresh_loop().await });
        assert_eq!(keys.wait_refreshed().await, Ok(()));
        assert_eq!(verify(&verifier, &signed_ticket(&key)), Ok(()));
        server.set_answer("503 Service Unavailable", "");
        assert_eq!(keys.wait_refreshed().await, Err(VerifyingKeysUnavailableError));
        assert_eq!(verify(&verifier, &signed_ticket(&key)), Ok(()), "the old keys");
        server.publish_keys(&[&key]);
        assert_eq!(keys.wait_refreshed().await, Ok(()));
    });
}

/// Keys are too old if their newest successful fetch began longer ago than the limit, however long its response took; a
/// later plan takes over that age.
#[test]
fn keys_age_from_begin_of_good_fetch() {
    const LONGEST: Duration = Duration::from_secs(3600);
    const MORE: Duration = Duration::from_secs(1);
    run(async {
        let server = FakeJwksServer::start().await;
        let key = signing_pair();
        server.publish_keys(&[&key]);
        let clock = Arc::new(ManualClock::default());
        let bounded = |former: Option<&JwksFetcher>| {
            let (_, remote) = remote_verifier(&server.url, HASTY);
            remote.with_max_age(("i", LONGEST), clock.clone(), IssuerKeyMetrics::unexposed(), former)
        };
        let remote = bounded(None);
        assert!(remote.are_keys_too_old(), "they were never fetched");
        remote.fetch().await.expect("a key set");
        clock.advance(LONGEST);
        assert!(!remote.are_keys_too_old());
        server.set_answer("503 Service Unavailable", "");
        remote.fetch().await.expect_err("no key set");
        assert!(!remote.are_keys_too_old());
        assert!(!bounded(Some(&remote)).are_keys_too_old());
        clock.advance(MORE);
        assert!(remote.are_keys_too_old());
        assert!(bounded(Some(&remote)).are_keys_too_old());
        server.publish_keys(&[&key]);
        remote.fetch().await.expect("a key set");
        assert!(!remote.are_keys_too_old());
        // The process is frozen between the request for the keys and the response.
        clock.advance_after_next_read(LONGEST + MORE);
        remote.fetch().await.expect("a key set");
        assert!(remote.are_keys_too_old());
        let (_, unbounded) = remote_verifier(&server.url, HASTY);
        assert!(!unbounded.are_keys_too_old());
    });
}

/// At most [`MOST_WAITING`] requests may wait for keys; when one of them ends its wait, another one may wait.
#[test]
fn waits_for_keys_are_bounded() {
    let (_, remote) = remote_verifier("http://localhost/", HASTY);
    let mut waiting: Vec<_> = (0..MOST_WAITING).map(|_| remote.try_begin_wait().expect("room")).collect();
    assert!(remote.try_begin_wait().is_none());
    waiting.pop();
    assert!(remote.try_begin_wait().is_some());
}

/// A URL must be absolute and `http`, or `https` if TLS settings are given, and without user information.
#[test]
fn only_http_urls_are_accepted() {
    for (url, why) in [
        ("https://a/b", JwksUrlError::Scheme("https://a/b".into())),
        ("file:///etc/keys", JwksUrlError::Scheme("file:///etc/keys".into())),
        ("http://user:password@a/b", JwksUrlError::User),
        ("/b", JwksUrlError::Form("/b".into())),
        ("a", JwksUrlError::Form("a".into())),
        ("http://", JwksUrlError::Form("http://".into())),
        ("", JwksUrlError::Form(String::new())),
    ] {
        let keys = TicketVerifier::without_keys().keys().clone();
        let found = JwksFetcher::new(url, JwksRefreshPolicy::default(), None, keys).map(drop);
        let form = matches!((&found, &why), (Err(JwksUrlError::Form(_)), JwksUrlError::Scheme(_)));
        assert!(found == Err(why) || form, "{url}: {found:?}");
    }
    let accepts = |url, tls| {
        let keys = TicketVerifier::without_keys().keys().clone();
        JwksFetcher::new(url, JwksRefreshPolicy::default(), tls, keys).is_ok()
    };
    assert!(accepts("http://[::1]:8080/keys", None));
    assert!(accepts("https://a/b", Some(Arc::new(UpstreamTlsConnector::trusting_none()))));
}
