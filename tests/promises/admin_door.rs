//! The admin listener refuses requests without the required token or certificate, with a foreign host name, or from the
//! page of another site. Each change and each refused attempt writes an audit line with its principal.
//!
//! Every route is requested without a token, with a wrong token, with a foreign host name, from another origin, and
//! with the wrong method.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use fencegate_testkit::scratch;
use fencegate_tests::{
    client::{ClientResponse, Http1Client, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    guard::GuardFixture,
    policy::TestPolicy,
    process::TestProcess,
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

/// The routes of a gateway that read, and those that change something.
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

/// The admin routes that need no token, because probes and guards call them.
const OPEN: [&str; 3] = ["/live", "/ready", "/jwks.json"];

/// A token in a file that only the user of the tests can read.
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

async fn ask(process: &TestProcess, request: TestRequest) -> ClientResponse {
    request.send_to(process.admin).await.expect("an answer")
}

fn reason(answer: &ClientResponse) -> String {
    let problem: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    problem["reason"].as_str().unwrap_or_default().to_owned()
}

fn with_bearer(request: TestRequest, token: &str) -> TestRequest {
    request.field("authorization", &format!("Bearer {token}"))
}

/// Asserts that every route refuses every kind of unauthorized request.
async fn assert_unauthorized_refused(process: &TestProcess, read: &[&str], changed: &[&str]) {
    let good = |method, path: &str| with_bearer(TestRequest::with_method(method, path), TOKEN);
    for (method, paths) in [("GET", read), ("POST", changed)] {
        for path in paths {
            let open = OPEN.contains(path);
            for (how, wrong) in [
                ("no token", TestRequest::with_method(method, path)),
                (
                    "wrong token",
                    with_bearer(TestRequest::with_method(method, path), "0123456789abcdef-admi?"),
                ),
                ("longer token", with_bearer(TestRequest::with_method(method, path), &format!("{TOKEN}x"))),
                ("two tokens", with_bearer(good(method, path), TOKEN)),
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
                assert_cross_origin_refused(process, path, &good).await;
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

async fn assert_cross_origin_refused(
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

/// Admin routes of a gateway refuse unknown hosts, other origins and, unless open to probes, a missing or wrong
/// token.
#[tokio::test]
async fn gateway_refuses_unauthorized_admin_requests() {
    let site = TestSite::fresh().await;
    let secret = TokenFile::new();
    let gateway = GatewayLaunch::new(&secret.policy(&site)).start().await;
    gateway.wait_ready().await;
    assert_unauthorized_refused(&gateway, &READ, &CHANGED).await;
    // No refused request has drained the gateway, and a client with the token is served.
    for path in READ {
        let answer = ask(&gateway, with_bearer(TestRequest::get(path), TOKEN)).await;
        let nobody_wants_it = path.ends_with("account%2F7");
        assert_eq!(answer.status, if nobody_wants_it { 404 } else { 200 }, "{path}: {answer:?}");
        assert_eq!(answer.field("x-content-type-options"), Some("nosniff"), "{path}");
        let policy = answer.field("content-security-policy").unwrap_or_default();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    }
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
}

/// Admin routes of a guard refuse unknown hosts, other origins and, unless open to probes, a missing or wrong token.
#[tokio::test]
async fn guard_refuses_unauthorized_admin_requests() {
    let fixture = GuardFixture::new().await;
    let secret = TokenFile::new();
    let launch = fixture.launch().await.with("/admin/auth", json!({"bearer_file": secret.path()}));
    let guard = launch.start().await;
    assert_unauthorized_refused(&guard, &READ_OF_GUARD, &CHANGED_OF_GUARD).await;
    let answer = ask(&guard, with_bearer(TestRequest::get("/api/v1/operations"), TOKEN)).await;
    assert_eq!(answer.status, 200);
}

/// Pages of other sites reach loopback through the browser of an operator. Without a token, changes with their origin or
/// host are refused, and changes from the gateway's own page are accepted.
#[tokio::test]
async fn loopback_without_token_refuses_other_sites() {
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

/// Each admin change and each refused attempt writes one audit line with principal and status, and never the token.
#[tokio::test]
async fn changes_and_refused_attempts_are_audited() {
    let site = TestSite::fresh().await;
    let secret = TokenFile::new();
    let gateway = Gateway::start(&secret.policy(&site)).await;
    for (attempt, status) in [
        (TestRequest::post("/api/v1/reload"), 401),
        (with_bearer(TestRequest::post("/api/v1/reload"), TOKEN).field("origin", "http://evil.example"), 403),
        (with_bearer(TestRequest::post("/api/v1/reload"), TOKEN), 200),
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

/// A changed token file takes effect while the gateway runs; an unusable file leaves the current token in force.
#[tokio::test]
async fn token_file_reloads_unless_invalid() {
    let site = TestSite::fresh().await;
    let secret = TokenFile::new();
    let gateway = Gateway::start(&secret.policy(&site)).await;
    let status =
        async |token: &str| ask(&gateway, with_bearer(TestRequest::get("/metrics"), token)).await.status;
    secret.write("short");
    gateway.wait_line("that it cannot be used", |line| line.message().starts_with("bearer.unusable")).await;
    assert_eq!((status(TOKEN).await, status("short").await), (200, 401));
    secret.write("fedcba9876543210");
    gateway.wait_line("the change", |line| line.message() == "bearer.changed").await;
    assert_eq!((status(TOKEN).await, status("fedcba9876543210").await), (401, 200));
}

/// A gateway does not start when other users can read its token file, or when the token is too short.
#[tokio::test]
async fn start_fails_with_world_readable_token() {
    let site = TestSite::fresh().await;
    let secret = TokenFile::new();
    fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o644)).expect("our own file");
    let output = GatewayLaunch::new(&secret.policy(&site)).expect_start_failure().await;
    assert!(output.contains("chmod 600") && !output.contains(TOKEN), "{output}");
    secret.write("short");
    let output = GatewayLaunch::new(&secret.policy(&site)).expect_start_failure().await;
    assert!(output.contains("FG0512"), "{output}");
}

/// With `client_auth: required` no request without a certificate is answered, and audit lines name the certificate.
#[tokio::test]
async fn client_certificate_is_required_and_audited() {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
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

/// The admin listener refuses too large bodies and heads, and closes a connection whose head is not complete in time.
#[tokio::test]
async fn large_or_slow_requests_are_cut_off() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let large = TestRequest::post("/api/v1/operations/x/resolve").body(vec![b' '; 64 * 1024]);
    assert_eq!(ask(&gateway, large).await.status, 413);
    let long = TestRequest::get("/live").field("x", &"x".repeat(64 * 1024));
    // The gateway answers with a refusal, or closes the connection while the client still sends.
    if let Ok(answer) = long.send_to(gateway.admin).await {
        assert_eq!(answer.status, 431);
    }
    let mut half_a_head = begin_request(&gateway, "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n").await;
    wait_hung_up(&mut half_a_head).await;
    assert_eq!(gateway.admin("/ready").await.status, 200);
}

/// Longer than the admin listener waits for the first complete head of a connection.
const SOON: Duration = Duration::from_secs(10);

async fn wait_hung_up(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // A reset counts as a closed connection, too.
    drop(timeout(SOON, stream.read_to_end(&mut rest)).await.expect("hung up on"));
}

async fn begin_request(gateway: &Gateway, bytes: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.admin).await.expect("listens");
    stream.write_all(bytes.as_bytes()).await.expect("there is room");
    stream
}

/// Probes come from the same address as other programs on the host. Idle connections and incomplete requests from that
/// address must not use up the capacity for probes: the oldest connections are closed for new ones.
#[tokio::test]
async fn idle_connections_do_not_block_probes() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let half_a_body = "POST /api/v1/reload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf";
    let again = "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let mut all = Vec::new();
    for bytes in ["", half_a_body, again, "GET /live HT"].repeat(40) {
        all.push(begin_request(&gateway, bytes).await);
        if all.len().is_multiple_of(20) {
            for path in ["/live", "/ready"] {
                let probed = timeout(Duration::from_secs(3), gateway.admin(path)).await;
                assert_eq!(probed.expect("answered at once").status, 200, "{path} after {}", all.len());
            }
        }
    }
    // The gateway has closed the oldest connections in favour of the new ones, long before their time limits.
    wait_hung_up(&mut all[2]).await;
}
