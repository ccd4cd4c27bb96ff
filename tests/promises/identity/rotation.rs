//! The keys of an issuer, from a file and from a URL, while they change and while their server is away.

use std::{fs, net::SocketAddr, time::Duration};

use fencegate_testkit::{
    scratch,
    terminator::{ClientCertificatePolicy, TestCa, TlsTerminator},
    wait::wait_until,
};
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, Http1Client, TestRequest},
    gateway::{Gateway, command},
    origin::{Origin, OriginAction, OriginReply},
    site::TestSite,
};
use tokio::{sync::watch, task::JoinHandle, time::sleep};

use super::{
    ISSUER, IssuerKey, assert_refused, issuer, issuer_with_file, key_set, policy_by_token, with_bearer,
};

/// The path of the key set at the server.
const PATH: &str = "/jwks.json";
/// The number of requests between two changes of the keys.
const BETWEEN: usize = 60;

/// A server of key sets.
pub(crate) struct KeyServer {
    origin: Origin,
    address: SocketAddr,
}

impl KeyServer {
    pub(crate) fn start(keys: &[&IssuerKey]) -> Self {
        let origin = Origin::start();
        let address = origin.open_listener("keys");
        let server = Self { origin, address };
        server.publish(keys);
        server
    }

    pub(crate) fn publish(&self, keys: &[&IssuerKey]) {
        self.origin.set_default_action(OriginAction::now(OriginReply::with_body(key_set(keys))));
    }

    pub(crate) fn go_away(&self) {
        self.origin.set_default_action(OriginAction::Reset);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    fn fetches(&self) -> usize {
        self.origin.count(PATH)
    }
}

/// Clients that send requests without a pause, each on its own connection, with the token that is current.
struct TokenLoad {
    token: watch::Sender<String>,
    stop: watch::Sender<bool>,
    clients: Vec<JoinHandle<Vec<ClientResponse>>>,
}

impl TokenLoad {
    fn start(gateway: &Gateway, clients: usize, token: String) -> Self {
        let token = watch::Sender::new(token);
        let stop = watch::Sender::new(false);
        let client = |number| {
            let path = format!("/pay/{number}");
            tokio::spawn(send_until(gateway.public, path, token.subscribe(), stop.subscribe()))
        };
        let clients = (0..clients).map(client).collect();
        Self { token, stop, clients }
    }

    /// Sends this token from the next request of each client on.
    fn use_token(&self, token: String) {
        self.token.send_replace(token);
    }

    /// Ends the clients, and asserts that each of their requests was served.
    async fn assert_all_served(self) {
        self.stop.send_replace(true);
        for client in self.clients {
            let answers = wait_until("a client to end", client, || "it goes on").await.expect("no panic");
            assert!(!answers.is_empty());
            for answer in answers {
                assert_eq!(answer.status, 200, "{answer:?}");
            }
        }
    }
}

async fn send_until(
    gateway: SocketAddr,
    path: String,
    token: watch::Receiver<String>,
    stop: watch::Receiver<bool>,
) -> Vec<ClientResponse> {
    let mut client = Http1Client::connect(gateway).await.expect("it listens");
    let mut answers = Vec::new();
    while !*stop.borrow() {
        let request = with_bearer(TestRequest::post(&path), &token.borrow());
        answers.push(client.send(&request).await.expect("an answer"));
        sleep(Duration::from_millis(5)).await;
    }
    answers
}

fn pay(key: &IssuerKey) -> TestRequest {
    with_bearer(TestRequest::post("/pay/7"), &key.token_of("ann"))
}

/// An issuer signs with a new key as soon as it has published it, and then removes the old key, several times: no
/// request fails, and few fetches are made.
#[tokio::test]
async fn rotation_at_url_fails_no_request() {
    const ROTATIONS: usize = 4;
    let site = TestSite::fresh().await;
    let mut current = IssuerKey::new("0");
    let server = KeyServer::start(&[&current]);
    // The cache duration is so long that no fetch is made because of the age of the keys.
    let mut by_url = issuer(("jwks_url", &server.url()));
    by_url["cache_duration"] = "1h".into();
    let gateway = Gateway::start(&policy_by_token(&site, by_url)).await;
    let load = TokenLoad::start(&gateway, 8, current.token_of("ann"));
    for number in 1..=ROTATIONS {
        site.origin.wait_more("gw-1", BETWEEN).await;
        let next = IssuerKey::new(&number.to_string());
        server.publish(&[&next, &current]);
        load.use_token(next.token_of("ann"));
        site.origin.wait_more("gw-1", BETWEEN).await;
        server.publish(&[&next]);
        current = next;
    }
    site.origin.wait_more("gw-1", BETWEEN).await;
    load.assert_all_served().await;
    let fetches = server.fetches();
    assert!((ROTATIONS + 1..=2 * ROTATIONS + 1).contains(&fetches), "{fetches}");

    // The next fetch, for whatever token, ends the validity of all tokens of a key that was removed, also of those that
    // were accepted before. Under the load one worker may have fetched once more than another; here nothing else runs.
    let last = IssuerKey::new("last");
    server.publish(&[&last, &current]);
    assert_eq!(gateway.send(&pay(&last)).await.status, 200, "fetched for this request");
    server.publish(&[&last]);
    assert_eq!(gateway.send(&pay(&current)).await.status, 200, "nothing has been fetched since");
    let unknown = IssuerKey::new("unknown");
    assert_refused(&gateway.send(&pay(&unknown)).await, 401, "bearer-invalid", "an unknown key");
    assert_refused(&gateway.send(&pay(&current)).await, 401, "bearer-invalid", "a key that was removed");
    assert_eq!(gateway.send(&pay(&last)).await.status, 200);
}

/// An issuer changes the keys in a file, which is replaced as a whole: no request fails.
#[tokio::test]
async fn rotation_in_file_fails_no_request() {
    let site = TestSite::fresh().await;
    let folder = scratch::temp_dir();
    let file = folder.path().join("jwks.json");
    let write = |keys: &[&IssuerKey]| {
        let new = folder.path().join("new");
        fs::write(&new, key_set(keys)).expect("our own folder");
        fs::rename(&new, &file).expect("one folder");
    };
    let mut current = IssuerKey::new("0");
    write(&[&current]);
    let gateway = Gateway::start(&policy_by_token(&site, issuer_with_file(&file))).await;
    let load = TokenLoad::start(&gateway, 8, current.token_of("ann"));
    for number in 1..=6 {
        site.origin.wait_more("gw-1", BETWEEN).await;
        let next = IssuerKey::new(&number.to_string());
        write(&[&current, &next]);
        load.use_token(next.token_of("ann"));
        current = next;
    }
    site.origin.wait_more("gw-1", BETWEEN).await;
    // A file that is no key set changes nothing.
    fs::write(&file, "{").expect("our own folder");
    site.origin.wait_more("gw-1", BETWEEN).await;
    load.assert_all_served().await;
}

/// While the server of keys is away, the known keys stay valid, also after a reload. A token of an unknown key is
/// neither accepted nor called invalid, and is accepted when the server is back. The server is reached over TLS.
#[tokio::test]
async fn known_keys_outlive_their_server() {
    let site = TestSite::fresh().await;
    let [known, unknown] = ["known", "unknown"].map(IssuerKey::new);
    let server = KeyServer::start(&[&known]);
    let authority = TestCa::new();
    let folder = scratch::temp_dir();
    authority.write(&folder.path().join("ca.pem"));
    let shown = authority.sign(&["localhost"]);
    let door = TlsTerminator::start(&shown, &ClientCertificatePolicy::Anybody, &["http/1.1"], server.address);
    let url = format!("https://localhost:{}{PATH}", door.address.port());
    let mut by_url = issuer(("jwks_url", &url));
    by_url["jwks_ca_file"] = folder.path().join("ca.pem").to_str().expect("our own name").into();
    let policy = policy_by_token(&site, by_url);
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&pay(&known)).await.status, 200);
    let check =
        command(&["check", "--online", &gateway.file().display().to_string()]).await.expect("started");
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(said.contains("has the keys known"), "{said}");

    server.go_away();
    let away = gateway.send(&pay(&unknown)).await;
    assert_refused(&away, 503, "jwks-away", "the server is away");
    assert!(away.field("retry-after").is_some(), "{away:?}");
    assert_eq!(gateway.send(&pay(&known)).await.status, 200);
    gateway.rewrite(&policy.with("/jwt/0/leeway", "10s"));
    assert_eq!(gateway.reload(&[]).await.0, Some(0), "{}", gateway.log());
    assert_eq!(gateway.send(&pay(&known)).await.status, 200, "a reload keeps the keys");
    assert_refused(&gateway.send(&pay(&unknown)).await, 503, "jwks-away", "the server is away");
    assert_eq!(site.origin.count("/pay/7"), 3);

    server.publish(&[&known, &unknown]);
    assert_eq!(gateway.send(&pay(&unknown)).await.status, 200, "{}", gateway.log());
}

/// However many tokens of unknown keys come, they cause at most one fetch a second, and delay no other client.
#[tokio::test]
async fn unknown_keys_delay_nobody() {
    let site = TestSite::fresh().await;
    let known = IssuerKey::new("known");
    let server = KeyServer::start(&[&known]);
    let gateway = Gateway::start(&policy_by_token(&site, issuer(("jwks_url", &server.url())))).await;
    assert_eq!(gateway.send(&pay(&known)).await.status, 200);
    let before = server.fetches();
    let held = server.origin.hold(PATH);
    let stranger = IssuerKey::new("stranger");
    let begun = std::time::Instant::now();
    let waiting: Vec<_> = (0..100)
        .map(|number| {
            gateway.begin(with_bearer(TestRequest::post("/pay/7"), &stranger.token_of(&number.to_string())))
        })
        .collect();
    server.origin.wait_for_request(PATH, before + 1).await;
    assert_eq!(gateway.send(&pay(&known)).await.status, 200);
    held.release();
    for pending in waiting {
        let refused = pending.answer().await;
        assert!(
            matches!(
                (refused.status, refused.reason().as_str()),
                (401, "bearer-invalid") | (503, "jwks-away")
            ),
            "{refused:?}"
        );
    }
    let seconds = usize::try_from(begun.elapsed().as_secs()).expect("a short time");
    let fetches = server.fetches() - before;
    assert!(fetches <= seconds + 2, "{fetches} in {seconds} s");
    assert_eq!(site.origin.count("/pay/7"), 2);
}

/// At most 64 requests wait for a key that is not known; further ones are refused at once. None of them is dispatched,
/// and a token of a known key is accepted meanwhile.
#[tokio::test]
async fn waits_for_unknown_keys_are_bounded() {
    const BEYOND: usize = 36;
    let site = TestSite::fresh().await;
    let known = IssuerKey::new("known");
    let server = KeyServer::start(&[&known]);
    let gateway = Gateway::start(&policy_by_token(&site, issuer(("jwks_url", &server.url())))).await;
    assert_eq!(gateway.send(&pay(&known)).await.status, 200);
    let held = server.origin.hold(PATH);
    let stranger = IssuerKey::new("stranger");
    let waiting: Vec<_> = (0..64 + BEYOND).map(|_| gateway.begin(pay(&stranger))).collect();
    gateway
        .wait_line("that too many wait", |line| line.field("detail").starts_with("too many requests wait"))
        .await;
    assert_eq!(gateway.send(&pay(&known)).await.status, 200);
    held.release();
    for pending in waiting {
        let refused = pending.answer().await;
        assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched), "{refused:?}");
        match refused.status {
            503 => {
                assert_refused(&refused, 503, "jwks-away", "no key");
                assert!(refused.field("retry-after").is_some(), "{refused:?}");
            }
            // The keys have been fetched, and the key of this token is not among them.
            _ => assert_refused(&refused, 401, "bearer-invalid", "no key"),
        }
    }
    // Fewer are refused at once if a wait has ended before all requests had come.
    let beyond = gateway.log().matches("too many requests wait").count();
    assert!((1..=BEYOND).contains(&beyond), "{beyond}");
    assert_eq!(site.origin.count("/pay/7"), 2);
}

/// Keys that cannot be fetched again are valid for `max_key_age`. After that, every token of the issuer is refused, and
/// answer, log and metric give the reason, until the keys are fetched. A reload does not extend the age.
#[tokio::test]
async fn keys_end_with_their_age() {
    let site = TestSite::fresh().await;
    let [known, unknown] = ["known", "unknown"].map(IssuerKey::new);
    let server = KeyServer::start(&[&known]);
    let mut by_url = issuer(("jwks_url", &server.url()));
    by_url["cache_duration"] = "1s".into();
    by_url["max_key_age"] = "3s".into();
    let policy = policy_by_token(&site, by_url);
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&pay(&known)).await.status, 200);
    server.go_away();
    let series = "fencegate_issuer_keys_unusable";
    let label = format!("issuer=\"{ISSUER}\"");
    gateway.wait_series(series, &[&label], 1.0).await;
    gateway
        .wait_line("that no token counts", |line| line.message().starts_with("no token of an issuer counts"))
        .await;
    let dispatched = site.origin.count("/pay/7");
    let assert_stale = async |what: &str| {
        let stale = gateway.send(&pay(&known)).await;
        assert_refused(&stale, 503, "jwks-stale", what);
        assert_eq!(stale.outcome(), Some(FencingOutcome::NotDispatched), "{what}");
        assert!(stale.field("retry-after").is_some(), "{what}: {stale:?}");
    };
    assert_stale("too old").await;
    assert_refused(&gateway.send(&pay(&unknown)).await, 503, "jwks-away", "an unknown key");
    gateway.rewrite(&policy.clone().with("/jwt/0/leeway", "10s"));
    assert_eq!(gateway.reload(&[]).await.0, Some(0), "{}", gateway.log());
    assert_stale("after a reload").await;
    assert_eq!(site.origin.count("/pay/7"), dispatched);
    let failed =
        gateway.metrics().await.sum("fencegate_issuer_key_fetches_total", &[&label, "result=\"bad\""]);
    assert!(failed >= 1.0, "{failed}");

    server.publish(&[&known]);
    assert_eq!(gateway.send(&pay(&known)).await.status, 200, "{}", gateway.log());
    gateway.wait_series(series, &[&label], 0.0).await;
}

/// Keys are valid only with the authorities by which their server was verified. A reload with the same authority file
/// keeps the keys. With another file they are fetched again, verified by the file's content at that moment.
#[tokio::test]
async fn keys_count_with_authorities_of_their_server() {
    let site = TestSite::fresh().await;
    let known = IssuerKey::new("known");
    let server = KeyServer::start(&[&known]);
    let [ours, others] = [(), ()].map(|()| TestCa::new());
    let folder = scratch::temp_dir();
    let file = |name: &str| folder.path().join(name).to_str().expect("our own name").to_owned();
    ours.write(file("ours.pem").as_ref());
    others.write(file("others.pem").as_ref());
    let shown = ours.sign(&["localhost"]);
    let door = TlsTerminator::start(&shown, &ClientCertificatePolicy::Anybody, &["http/1.1"], server.address);
    let mut by_url = issuer(("jwks_url", &format!("https://localhost:{}{PATH}", door.address.port())));
    by_url["jwks_ca_file"] = file("ours.pem").into();
    let policy = policy_by_token(&site, by_url);
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&pay(&known)).await.status, 200);

    server.go_away();
    gateway.rewrite(&policy.clone().with("/jwt/0/leeway", "10s"));
    assert_eq!(gateway.reload(&[]).await.0, Some(0), "{}", gateway.log());
    assert_eq!(gateway.send(&pay(&known)).await.status, 200, "the same authorities");

    server.publish(&[&known]);
    gateway.rewrite(&policy.with("/jwt/0/jwks_ca_file", file("others.pem")));
    assert_eq!(gateway.reload(&[]).await.0, Some(0), "{}", gateway.log());
    assert_refused(&gateway.send(&pay(&known)).await, 503, "jwks-away", "other authorities");
    assert_eq!(site.origin.count("/pay/7"), 2);
    // The authority file is read again before the next fetch.
    ours.write(file("others.pem").as_ref());
    assert_eq!(gateway.send(&pay(&known)).await.status, 200, "{}", gateway.log());
}

/// A forwarded token reaches the holder unchanged, and the holder verifies it again.
#[tokio::test]
async fn token_is_sent_on_to_holder() {
    let site = TestSite::fresh().await;
    let key = IssuerKey::new("one");
    let server = KeyServer::start(&[&key]);
    let policy = |name: &str| {
        crate::forwarding::forwarding_policy(&site, name)
            .with("/jwt", serde_json::json!([issuer(("jwks_url", &server.url()))]))
            .with("/routes/0/fence/key", "account/{jwt:/sub}/{path.account}")
            .with("/upstreams/ledger/fields", serde_json::json!({"claims": {"X-User": "/sub"}}))
    };
    let (one, two) = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
    tokio::join!(one.wait_ready(), two.wait_ready());
    let token = key.token_of("ann");
    let request = |path: &str| with_bearer(TestRequest::post(path), &token).field("X-User", "root");
    let (path, held) = crate::forwarding::hold_forwarded(&site, &one, &two, request).await;
    assert_eq!(held.finish().await.status, 200);
    let answer = two.send(&request(&path)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let log = site.origin.log();
    for record in log.requests_for(&path) {
        assert_eq!(
            (record.gateway.as_str(), record.request.field("x-user")),
            ("gw-1", Some("ann")),
            "{record:?}"
        );
        assert!(record.request.field("authorization").is_some(), "{record:?}");
    }
    assert_eq!(log.requests_for(&path).count(), 3);
}
