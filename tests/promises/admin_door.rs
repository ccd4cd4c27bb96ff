//! The admin listener lets nobody in who does not show what is asked for, calls it by a foreign name, or comes from the
//! page of another site; and what is done leaves a line in the log with whom it was done by.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use fencegate_tests::{
    client::{ClientResponse, Http1Client, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    guard::GuardFixture,
    policy::TestPolicy,
    process::TestProcess,
    scratch,
    site::TestSite,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::tls::TlsFiles;

const TOKEN: &str = "0123456789abcdef-admin";

/// What is read, and what is changed, at a gateway.
const READ: [&str; 9] = [
    "/live",
    "/ready",
    "/metrics",
    "/api/v1/locks",
    "/api/v1/locks/account%2F7",
    "/api/v1/contention?top=20",
    "/api/v1/config",
    "/api/v1/members",
    "/api/v1/operations",
];
const CHANGED: [&str; 4] = [
    "/api/v1/reload",
    "/api/v1/drain",
    "/api/v1/locks/account%2F7/break",
    "/api/v1/operations/0123456789abcdef/resolve",
];
const READ_OF_GUARD: [&str; 6] =
    ["/live", "/ready", "/metrics", "/api/v1/operations", "/api/v1/keys/account/7", "/api/v1/refusals"];
const CHANGED_OF_GUARD: [&str; 4] = [
    "/api/v1/drain",
    "/api/v1/backup",
    "/api/v1/operations/0123456789abcdef/resolve",
    "/api/v1/operations/0123456789abcdef/forget",
];

/// Open to probes and guards.
const OPEN: [&str; 3] = ["/live", "/ready", "/jwks.json"];

/// A token in a file that only we can read.
struct TokenFile(TempDir);

impl TokenFile {
    fn new() -> Self {
        let secret = Self(scratch::temp_dir());
        secret.write(TOKEN);
        secret
    }

    fn write(&self, token: &str) {
        fs::write(self.path(), format!("{token}\n")).expect("our own folder");
        fs::set_permissions(self.path(), fs::Permissions::from_mode(0o600)).expect("our own file");
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("token")
    }

    fn policy(&self, site: &TestSite) -> TestPolicy {
        site.policy("gw-1").with("/admin/auth", json!({"bearer_file": self.path()}))
    }
}

async fn ask(process: &TestProcess, ask: TestRequest) -> ClientResponse {
    ask.send_to(process.admin).await.expect("an answer")
}

fn reason(answer: &ClientResponse) -> String {
    let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    told["reason"].as_str().unwrap_or_default().to_owned()
}

fn bearing(ask: TestRequest, token: &str) -> TestRequest {
    ask.field("authorization", &format!("Bearer {token}"))
}

/// Every route against every way not to be let in.
async fn nobody_gets_in(process: &TestProcess, read: &[&str], changed: &[&str]) {
    let good = |method, path: &str| bearing(TestRequest::with_method(method, path), TOKEN);
    for (method, paths) in [("GET", read), ("POST", changed)] {
        for path in paths {
            let open = OPEN.contains(path);
            for (how, wrong) in [
                ("no token", TestRequest::with_method(method, path)),
                ("wrong token", bearing(TestRequest::with_method(method, path), "0123456789abcdef-admi?")),
                ("longer token", bearing(TestRequest::with_method(method, path), &format!("{TOKEN}x"))),
                ("two tokens", bearing(good(method, path), TOKEN)),
                ("another scheme", TestRequest::with_method(method, path).field("authorization", "Digest x")),
            ] {
                let answer = ask(process, wrong).await;
                if open {
                    assert!(matches!(answer.status, 200 | 503), "{how} {path}: {}", answer.status);
                } else {
                    assert_eq!(
                        (answer.status, reason(&answer).as_str()),
                        (401, "credentials"),
                        "{how} {path}"
                    );
                    assert!(answer.fields.contains_key("www-authenticate"));
                }
            }
            for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:9901", ""] {
                let answer = ask(process, good(method, path).field("host", host)).await;
                assert_eq!((answer.status, reason(&answer).as_str()), (421, "host"), "{host} {path}");
            }
            if method == "POST" {
                crosses_no_origin(process, path, &good).await;
            }
            let answer = ask(
                process,
                TestRequest::with_method("OPTIONS", path).field("origin", "http://evil.example"),
            )
            .await;
            assert!(answer.field("access-control-allow-origin").is_none() && answer.status >= 400, "{path}");
        }
    }
}

async fn crosses_no_origin(
    process: &TestProcess,
    path: &str,
    good: &impl Fn(&'static str, &str) -> TestRequest,
) {
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1:1"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let answer = ask(process, good("POST", path).field(name, value)).await;
        assert_eq!(
            (answer.status, reason(&answer).as_str()),
            (403, "cross-origin"),
            "{name}: {value} {path}"
        );
    }
    let answer = ask(process, good("GET", path)).await;
    assert_eq!(answer.status, 405, "GET {path}");
    assert_eq!(answer.field("allow"), Some("POST"), "{path}");
}

#[tokio::test]
async fn nobody_gets_in_at_a_gateway_without_what_is_asked_for() {
    let (site, secret) = (TestSite::fresh().await, TokenFile::new());
    let gateway = GatewayLaunch::new(&secret.policy(&site)).start().await;
    gateway.wait_ready().await;
    nobody_gets_in(&gateway, &READ, &CHANGED).await;
    // No refused request has drained the gateway, and a client that shows the token is served.
    for path in READ {
        let answer = ask(&gateway, bearing(TestRequest::get(path), TOKEN)).await;
        let nobody_wants_it = path.ends_with("account%2F7");
        assert_eq!(answer.status, if nobody_wants_it { 404 } else { 200 }, "{path}: {answer:?}");
        assert_eq!(answer.field("x-content-type-options"), Some("nosniff"), "{path}");
        let policy = answer.field("content-security-policy").unwrap_or_default();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    }
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
}

#[tokio::test]
async fn nobody_gets_in_at_a_guard_without_what_is_asked_for() {
    let (beside, secret) = (GuardFixture::new().await, TokenFile::new());
    let launch = beside.launch().await.with("/admin/auth", json!({"bearer_file": secret.path()}));
    let guard = launch.start().await;
    nobody_gets_in(&guard, &READ_OF_GUARD, &CHANGED_OF_GUARD).await;
    let answer = ask(&guard, bearing(TestRequest::get("/api/v1/operations"), TOKEN)).await;
    assert_eq!(answer.status, 200);
}

/// Pages of other sites reach loopback through the browser of whoever looks at them.
#[tokio::test]
async fn on_loopback_without_a_token_other_sites_still_change_nothing() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    for path in CHANGED {
        for (name, value, status) in [
            ("host", "evil.example", 421),
            ("origin", "http://evil.example", 403),
            ("sec-fetch-site", "cross-site", 403),
        ] {
            assert_eq!(
                ask(&gateway, TestRequest::post(path).field(name, value)).await.status,
                status,
                "{name} {path}"
            );
        }
    }
    let own = format!("http://{}", gateway.admin);
    let answer = ask(&gateway, TestRequest::post("/api/v1/reload").field("origin", &own)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    gateway
        .wait_line("who did it", |line| line.message() == "audit" && line.field("principal") == "local")
        .await;
}

#[tokio::test]
async fn each_change_and_each_attempt_leaves_one_line() {
    let (site, secret) = (TestSite::fresh().await, TokenFile::new());
    let gateway = Gateway::start(&secret.policy(&site)).await;
    for (attempt, status) in [
        (TestRequest::post("/api/v1/reload"), 401),
        (bearing(TestRequest::post("/api/v1/reload"), TOKEN).field("origin", "http://evil.example"), 403),
        (bearing(TestRequest::post("/api/v1/reload"), TOKEN), 200),
    ] {
        assert_eq!(ask(&gateway, attempt).await.status, status);
    }
    gateway
        .wait_line("the reload", |line| line.message() == "audit" && line.field("principal") == "bearer")
        .await;
    let log = gateway.log();
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let audit: Vec<_> = lines
        .iter()
        .map(|line| &line["fields"])
        .filter(|fields| fields["message"] == "audit")
        .map(|fields| (fields["principal"].as_str(), fields["asked"].as_str(), fields["status"].as_u64()))
        .collect();
    let expected = [
        (Some("nobody"), Some("reload"), Some(401)),
        (Some("nobody"), Some("reload"), Some(403)),
        (Some("bearer"), Some("reload: unchanged"), Some(200)),
    ];
    assert_eq!(audit, expected, "{log}");
    assert!(!log.contains(TOKEN), "the token is in the log");
}

#[tokio::test]
async fn a_token_is_taken_over_from_its_file_and_a_bad_file_changes_nothing() {
    let (site, secret) = (TestSite::fresh().await, TokenFile::new());
    let gateway = Gateway::start(&secret.policy(&site)).await;
    let status = async |token: &str| ask(&gateway, bearing(TestRequest::get("/metrics"), token)).await.status;
    secret.write("short");
    gateway.wait_line("that it cannot be used", |line| line.message().starts_with("bearer.unusable")).await;
    assert_eq!((status(TOKEN).await, status("short").await), (200, 401));
    secret.write("fedcba9876543210");
    gateway.wait_line("the change", |line| line.message() == "bearer.changed").await;
    assert_eq!((status(TOKEN).await, status("fedcba9876543210").await), (401, 200));
}

#[tokio::test]
async fn a_gateway_does_not_start_with_a_token_that_others_can_read() {
    let (site, secret) = (TestSite::fresh().await, TokenFile::new());
    fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o644)).expect("our own file");
    let said = GatewayLaunch::new(&secret.policy(&site)).expect_start_failure().await;
    assert!(said.contains("chmod 600") && !said.contains(TOKEN), "{said}");
    secret.write("short");
    let said = GatewayLaunch::new(&secret.policy(&site)).expect_start_failure().await;
    assert!(said.contains("FG0512"), "{said}");
}

#[tokio::test]
async fn a_certificate_is_asked_for_and_named_in_the_log() {
    let (site, keys) = (TestSite::fresh().await, TlsFiles::new());
    let authority = keys.path("ca.pem");
    keys.authority.write(&authority);
    let tls = json!({
        "certificates": [keys.write("a", "localhost")],
        "client_auth": "required",
        "client_ca_file": authority,
    });
    let gateway = GatewayLaunch::new(&site.policy("gw-1").with("/admin/tls", tls)).start().await;
    assert!(TestRequest::get("/live").send_to(gateway.admin).await.is_err(), "plain text was answered");
    let operator = keys.authority.sign(&["operator.example"]);
    let nobody = keys.client().connect(gateway.admin, "localhost").await;
    if let Ok(stream) = nobody {
        let mut client = Http1Client::on_stream(stream, gateway.admin).await.expect("speaks HTTP/1.1");
        assert!(client.send(&TestRequest::get("/live")).await.is_err(), "answered without a certificate");
    }
    let known = keys.client().with_certificate(operator.certificate(), operator.key());
    let stream = known.connect(gateway.admin, "localhost").await.expect("accepted");
    let mut client = Http1Client::on_stream(stream, gateway.admin).await.expect("speaks HTTP/1.1");
    assert_eq!(client.send(&TestRequest::post("/api/v1/reload")).await.expect("an answer").status, 200);
    let named = |line: &fencegate_tests::gateway::LogLine| {
        line.message() == "audit" && line.field("principal").contains("operator.example")
    };
    gateway.wait_line("whose certificate it was", named).await;
}

#[tokio::test]
async fn what_is_too_large_or_too_slow_is_not_waited_for() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let large = TestRequest::post("/api/v1/operations/x/resolve").body(vec![b' '; 64 * 1024]);
    assert_eq!(ask(&gateway, large).await.status, 413);
    let long = TestRequest::get("/live").field("x", &"x".repeat(64 * 1024));
    // The gateway answers with a refusal, or closes the connection while the client still sends.
    if let Ok(answer) = long.send_to(gateway.admin).await {
        assert_eq!(answer.status, 431);
    }
    let mut half_a_head = begun(&gateway, "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n").await;
    is_hung_up_on(&mut half_a_head).await;
    assert_eq!(gateway.admin("/ready").await.status, 200);
}

/// More than the time for a first head.
const SOON: Duration = Duration::from_secs(10);

async fn is_hung_up_on(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // A reset counts as a closed connection, too.
    drop(timeout(SOON, stream.read_to_end(&mut rest)).await.expect("hung up on"));
}

async fn begun(gateway: &Gateway, bytes: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.admin).await.expect("listens");
    stream.write_all(bytes.as_bytes()).await.expect("there is room");
    stream
}

/// Probes come from the same address as whatever else runs beside the gateway.
#[tokio::test]
async fn whoever_lies_idle_or_never_ends_a_request_takes_no_place_from_probes() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let half_a_body = "POST /api/v1/reload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf";
    let again = "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let mut all = Vec::new();
    for bytes in ["", half_a_body, again, "GET /live HT"].repeat(40) {
        all.push(begun(&gateway, bytes).await);
        if all.len().is_multiple_of(20) {
            for path in ["/live", "/ready"] {
                let probed = timeout(Duration::from_secs(3), gateway.admin(path)).await;
                assert_eq!(probed.expect("answered at once").status, 200, "{path} after {}", all.len());
            }
        }
    }
    // The gateway has closed the oldest connections in favour of the new ones, long before their time limits.
    is_hung_up_on(&mut all[2]).await;
}
