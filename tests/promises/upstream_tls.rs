//! TLS to an upstream: requests go only to a server that proves its name, with a client certificate where the server
//! requests one, and files that change are read again.
//!
//! The write gate lies below TLS.

use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use fencegate_testkit::{
    fault_proxy::FaultProxy,
    scratch,
    terminator::{ClientCertificatePolicy, TestCa, TlsTerminator},
};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, LogLine, command, write_policy},
    history::History,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

const HTTP1: &[&str] = &["http/1.1"];

fn over_tls(policy: TestPolicy, address: SocketAddr, tls: Value) -> TestPolicy {
    policy
        .with("/upstreams/ledger/endpoints", json!([format!("https://{address}")]))
        .with("/upstreams/ledger/tls", tls)
}

/// Makes an authority whose certificate is in the folder.
fn authority(folder: &Path) -> TestCa {
    let authority = TestCa::new();
    authority.write(&folder.join("ca.pem"));
    authority
}

/// Requests arrive over TLS where the certificate names the endpoint.
#[tokio::test]
async fn requests_pass_over_verified_tls() {
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let authority = authority(home.path());
    let signed = authority.sign(&["127.0.0.1"]);
    let front = TlsTerminator::start(
        &signed,
        &ClientCertificatePolicy::Anybody,
        HTTP1,
        site.origin.open_listener("gw-1"),
    );
    let policy = over_tls(site.policy("gw-1"), front.address, json!({"ca_file": home.path().join("ca.pem")}));
    let gateway = Gateway::start(&policy).await;
    for n in 0..5 {
        let answer = gateway.send(&TestRequest::post("/pay/7").body(vec![n; 100_000])).await;
        assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    }
    assert_eq!(site.origin.wait_for_request("/pay/7", 5).await.request.body.len(), 100_000);
    History::from_log(&site.origin.log()).assert_holds();
    let seen = front.handshakes();
    assert!(seen.len() <= 2, "a connection per worker is enough: {seen:?}");
    assert_eq!(seen[0].protocol.as_deref(), Some("http/1.1"));
}

/// Nothing is sent to a server that cannot prove its name.
#[tokio::test]
async fn unverified_upstream_gets_nothing() {
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let believed = authority(home.path());
    let ca = json!({"ca_file": home.path().join("ca.pem")});
    let named = json!({"ca_file": home.path().join("ca.pem"), "server_name": "ledger.internal"});
    let cases = [
        ("another authority", TestCa::new().sign(&["127.0.0.1"]), ca.clone(), 502),
        ("another name", believed.sign(&["other.internal"]), ca, 502),
        ("the address, not the name", believed.sign(&["127.0.0.1"]), named.clone(), 502),
        ("the name that is asked for", believed.sign(&["ledger.internal"]), named, 200),
        ("the system's authorities", believed.sign(&["127.0.0.1"]), json!({}), 502),
    ];
    for (n, (case, signed, tls, status)) in cases.into_iter().enumerate() {
        let name = format!("gw-{n}");
        let front = TlsTerminator::start(
            &signed,
            &ClientCertificatePolicy::Anybody,
            HTTP1,
            site.origin.open_listener(&name),
        );
        let gateway = Gateway::start(&over_tls(site.policy(&name), front.address, tls)).await;
        let path = format!("/pay/{n}");
        let answer = gateway.send(&TestRequest::post(&path)).await;
        assert_eq!(answer.status, status, "{case}");
        if status != 200 {
            assert_eq!(answer.reason(), "upstream-connect", "{case}");
            assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched), "{case}");
            assert_eq!(site.origin.count(&path), 0, "{case}");
        }
    }
}

#[tokio::test]
async fn client_certificate_is_shown_on_request() {
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let authority = authority(home.path());
    let signed = authority.sign(&["127.0.0.1"]);
    let clients = ClientCertificatePolicy::SignedBy(&authority);
    let front = TlsTerminator::start(&signed, &clients, HTTP1, site.origin.open_listener("gw-1"));
    let (chain, key) = authority.sign(&["gateway"]).write(home.path(), "client");
    let shown = json!({
        "ca_file": home.path().join("ca.pem"),
        "client_certificate_file": chain,
        "client_key_file": key,
    });
    let gateway = Gateway::start(&over_tls(site.policy("gw-1"), front.address, shown)).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert!(front.handshakes()[0].client);

    let silent = json!({"ca_file": home.path().join("ca.pem")});
    let gateway = Gateway::start(&over_tls(site.policy("gw-2"), front.address, silent)).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/8")).await.status, 502);
    assert_eq!(site.origin.count("/pay/8"), 0);
}

/// Files that change are used for new connections, and invalid files change nothing.
///
/// First the server gets a certificate of another authority, which alone is trusted then. Then the file is written only
/// half.
#[tokio::test]
async fn changed_files_apply_bad_files_ignored() {
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let file = home.path().join("ca.pem");
    let old = authority(home.path());
    let new = TestCa::new();
    let front = TlsTerminator::start(
        &old.sign(&["127.0.0.1"]),
        &ClientCertificatePolicy::Anybody,
        HTTP1,
        site.origin.open_listener("gw-1"),
    );
    let policy = over_tls(site.policy("gw-1"), front.address, json!({"ca_file": file}));
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&TestRequest::get("/a")).await.status, 200);

    fs::write(&file, "-----BEGIN CERTIFICATE-----\nAAAA").expect("writable");
    gateway
        .wait_line("a bad file", |line: &LogLine| line.message().starts_with("upstream.tls_files_bad"))
        .await;
    assert_eq!(gateway.send(&TestRequest::get("/a")).await.status, 200);
    let bad = gateway.metrics().await.sum("fencegate_upstream_tls_files_total", &["result=\"bad\""]);
    assert!(bad > 0.5, "{bad}");

    front.set_certificate(&new.sign(&["127.0.0.1"]), &ClientCertificatePolicy::Anybody, HTTP1);
    new.write(&file);
    gateway
        .wait_line("a good file", |line: &LogLine| line.message() == "upstream.tls_files_taken_over")
        .await;
    let before = front.handshakes().len();
    for _ in 0..4 {
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.outcome(), Some(FencingOutcome::Done));
    }
    assert!(front.handshakes().len() > before, "a connection that the old files made was used again");
}

#[tokio::test]
async fn unusable_files_prevent_start() {
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let authority = authority(home.path());
    let (chain, key) = authority.sign(&["gateway"]).write(home.path(), "client");
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let told = async |tls: Value| {
        let policy = over_tls(site.policy("gw-1"), address, tls);
        let file = write_policy(home.path(), &policy.to_string());
        let output = command(&["run", "--init", "-c", &file.display().to_string()]).await.expect("starts");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
    };
    let absent = told(json!({"ca_file": home.path().join("absent.pem")})).await;
    assert!(absent.contains("absent.pem"), "{absent}");
    let pair = json!({"client_certificate_file": chain, "client_key_file": key});
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("our own file");
    let readable = told(pair).await;
    assert!(readable.contains("chmod 600"), "{readable}");
}

/// No byte of a request leaves through TLS after the session is lost.
///
/// The proof of the session is checked below TLS: bytes that were encrypted before the session was lost are not sent
/// after it.
#[tokio::test]
async fn no_byte_leaves_after_session_loss() {
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let authority = authority(home.path());
    let signed = authority.sign(&["127.0.0.1"]);
    let front = TlsTerminator::start(
        &signed,
        &ClientCertificatePolicy::Anybody,
        HTTP1,
        site.origin.open_listener("gw-1"),
    );
    let relay = FaultProxy::start(site.zookeeper);
    let policy = over_tls(site.policy("gw-1"), front.address, json!({"ca_file": home.path().join("ca.pem")}))
        .with_zookeeper(relay.address);
    let gateway = site.gateway_paused_at(&policy, "before_upstream_write", Duration::from_millis(3500)).await;
    let asked = gateway.begin(TestRequest::post("/pay/7"));
    gateway.wait_at_failpoint("before_upstream_write").await;
    drop(relay);
    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.reason().as_str()), (503, "suspended"));
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    assert_eq!(site.origin.count("/pay/7"), 0);
}

#[tokio::test]
async fn health_checks_use_tls() {
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let authority = authority(home.path());
    let signed = authority.sign(&["127.0.0.1"]);
    let front = TlsTerminator::start(
        &signed,
        &ClientCertificatePolicy::Anybody,
        HTTP1,
        site.origin.open_listener("gw-1"),
    );
    let tls = json!({"ca_file": home.path().join("ca.pem")});
    let policy = over_tls(site.policy("gw-1"), front.address, tls)
        .with("/upstreams/ledger/health", json!({"path": "/health", "interval": "50ms"}));
    let gateway = Gateway::start(&policy).await;
    site.origin.wait_for_request("/health", 3).await;
    let good = gateway.metrics().await.sum("fencegate_upstream_health_checks_total", &["result=\"good\""]);
    assert!(good > 1.5, "{good}");
}
