//! A gateway uses TLS with ZooKeeper where its policy configures it, shows its certificate, and reports the cause
//! where it is refused.
//!
//! Commands use TLS as well. A certificate that either side does not trust, or that has expired, is reported as such.
//! A certificate that is replaced is taken over, and a bad one changes nothing.

use std::{fs, path::PathBuf, time::Duration};

use fencegate_testkit::{
    fault_proxy::FaultProxy,
    scratch,
    terminator::{SignedCertificate, TestCa},
    wait::wait_until,
};
use fencegate_tests::{
    client::TestRequest,
    ensemble::over_tls::{TlsEnsemble, shared},
    gateway::{Gateway, GatewayLaunch, command, write_policy},
    history::History,
    load::{LoadPlan, RunningLoad},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::sleep,
};

/// A policy whose certificate file can be replaced.
struct ReplaceableCertificate {
    policy: TestPolicy,
    folder: TempDir,
}

impl ReplaceableCertificate {
    fn new(site: &TestSite, servers: &TlsEnsemble, signed: &SignedCertificate) -> Self {
        let folder = scratch::temp_dir();
        let tls = servers.tls(folder.path(), signed);
        Self { policy: site.policy("gw-1").with("/zookeeper/tls", tls), folder }
    }

    fn replace(&self, signed: &SignedCertificate) {
        signed.write(self.folder.path(), "client");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// The interval at which `/ready` is polled, because no event reports its change.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

async fn wait_ready_text(gateway: &Gateway, words: &str) {
    let told = async {
        while !String::from_utf8_lossy(&gateway.admin("/ready").await.body).contains(words) {
            sleep(LOOK_AGAIN).await;
        }
    };
    wait_until(&format!("/ready to say {words}"), told, || gateway.log()).await;
}

/// The output of `check --online` for a policy.
async fn run_check_online(policy: &TestPolicy) -> Value {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    let output = command(&["check", &file, "--online", "--format", "json"]).await.expect("started");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn messages(said: &Value, code: &str) -> Vec<String> {
    let all = said["diagnostics"].as_array().expect("a list").iter();
    all.filter(|one| one["code"] == code).map(|one| one["message"].to_string()).collect()
}

/// Requests are serial under locks that are taken over TLS.
///
/// Two gateways use TLS, and so do the commands that connect to ZooKeeper themselves.
#[tokio::test]
async fn locks_over_tls_keep_requests_serial() {
    let site = TestSite::secured().await;
    let (one, two) = Gateway::start_both(&site.policy("gw-1"), &site.policy("gw-2")).await;
    let plan = LoadPlan::payments(&[&one, &two], 3, 6, 20);
    let told = RunningLoad::start("tls", &plan).end().await;
    let history = History::from_log(&site.origin.log()).with_results(&told);
    history.assert_holds();
    assert!(told.iter().all(|told| told.answer.as_ref().is_ok_and(|answer| answer.status == 200)));
    assert!(history.hand_overs() >= 10, "not exercised: {} hand-overs", history.hand_overs());

    let file = one.file().display().to_string();
    let era = command(&["era", "show", "-c", &file]).await.expect("started");
    assert!(era.status.success(), "{era:?}");
    let said = run_check_online(&site.policy("gw-3")).await;
    assert_eq!(messages(&said, "FG0521"), [""; 0], "{said:#}");
    let valid =
        said["online"].as_array().expect("it went").iter().filter(|fact| fact["about"] == "certificates");
    assert!(valid.count() >= 2, "ours and that of each server: {said:#}");
}

/// A client certificate that ZooKeeper refuses is reported with its cause in the log, in `/ready` and by the check: one
/// of an unknown authority, an expired one, or none.
#[tokio::test]
async fn zookeepers_refusal_of_client_certificate_is_reported() {
    let site = TestSite::secured().await;
    let servers = shared();
    let expired = ReplaceableCertificate::new(&site, servers, &servers.authority.sign_expired(&["gateway"]));
    let stranger = ReplaceableCertificate::new(&site, servers, &TestCa::new().identify("gateways"));
    let nobody =
        site.policy("gw-1").with("/zookeeper/tls", Value::from(tls_without_certificate(servers, &stranger)));
    for (policy, words) in [
        (&expired.policy, "has expired"),
        (&stranger.policy, "does not believe who signed our certificate"),
        (&nobody, "`client_certificate_file` is not set"),
    ] {
        let gateway = GatewayLaunch::new(policy).start().await;
        wait_ready_text(&gateway, words).await;
        let line = gateway.wait_line("the code", |line| line.text().contains("FG0521")).await;
        assert!(line.text().contains(words), "{}", line.text());
        let answer = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!((answer.status, answer.reason().as_str()), (503, "lock-service"));
        let said = run_check_online(policy).await;
        assert!(messages(&said, "FG0521").concat().contains(words), "{said:#}");
        assert_eq!(messages(&said, "FG0505"), [""; 0], "away: {said:#}");
    }
    let said = run_check_online(&expired.policy).await;
    assert!(!messages(&said, "FG0511").is_empty(), "{said:#}");
    let file = expired.file("policy.yaml");
    fs::write(&file, expired.policy.to_string()).expect("our own folder");
    let era = command(&["era", "show", "-c", &file.display().to_string()]).await.expect("started");
    let error = String::from_utf8_lossy(&era.stderr).into_owned();
    assert!(!era.status.success() && error.contains("has expired"), "{error}");
}

/// The `tls` section without a client certificate.
fn tls_without_certificate(
    servers: &TlsEnsemble,
    beside: &ReplaceableCertificate,
) -> serde_json::Map<String, Value> {
    let ca = beside.file("believed.pem");
    servers.authority.write(&ca);
    [("ca_file".to_owned(), Value::from(ca.display().to_string()))].into_iter().collect()
}

/// The log and the check report ZooKeeper servers that are not trusted or have a port without TLS.
#[tokio::test]
async fn untrusted_servers_are_reported() {
    let site = TestSite::secured().await;
    let servers = shared();
    let shown = ReplaceableCertificate::new(&site, servers, &servers.authority.identify("gateways"));
    TestCa::new().write(&shown.file("ca.pem"));
    let gateway = GatewayLaunch::new(&shown.policy).start().await;
    wait_ready_text(&gateway, "nobody in `ca_file` has signed its certificate").await;
    // This port has no TLS.
    let plain = servers.plain_address().to_string();
    let plain = site.policy("gw-2").with("/zookeeper/servers", vec![plain]);
    let said = run_check_online(&plain).await;
    assert!(messages(&said, "FG0521").concat().contains("a port without TLS"), "{said:#}");
}

/// After a broken connection the next one shows the certificate that the file contains then, even an expired one. The
/// session continues meanwhile.
#[tokio::test]
async fn reconnect_shows_current_certificate() {
    let site = TestSite::secured().await;
    let servers = shared();
    let cut = FaultProxy::start(servers.address());
    let shown = ReplaceableCertificate::new(&site, servers, &servers.authority.identify("gateways"));
    let policy = shown.policy.clone().with_zookeeper(cut.address).with("/zookeeper/session_timeout", "20s");
    let gateway = GatewayLaunch::new(&policy).with_log_filter("info,zookeeper_client=debug").start().await;
    gateway.wait_ready().await;

    shown.replace(&servers.authority.sign_expired(&["gateway"]));
    gateway.wait_series_at_least("fencegate_zk_tls_reloads_total", &["result=\"ok\""], 1.0).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "the connection goes on");
    cut.close();
    cut.open();
    let refused = |line: &str| line.contains("fails in connecting") && line.contains("AlertReceived");
    gateway.wait_line("that the server refuses it", move |line| refused(&line.text())).await;

    shown.replace(&servers.authority.identify("gateways"));
    gateway.wait_series_at_least("fencegate_zk_reconnects_total", &[], 1.0).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert_eq!(gateway.metrics().await.sum("fencegate_zk_session_expirations_total", &[]), 0.0);
}

/// A server that imitates ZooKeeper only in its answer to a query is reported.
#[tokio::test]
async fn imitation_zookeeper_is_reported() {
    let site = TestSite::fresh().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let keeper = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut word = [0; 4];
            if stream.read_exact(&mut word).await.is_ok() && &word == b"srvr" {
                stream.write_all(b"ClickHouse Keeper version: v24.1.1\n").await.ok();
            }
        }
    });
    let servers = [site.zookeeper, address].map(|server| server.to_string());
    let said = run_check_online(&site.policy("gw-1").with("/zookeeper/servers", servers.to_vec())).await;
    let told = messages(&said, "FG0523");
    assert!(told.len() == 1 && told[0].contains(&servers[1]), "{said:#}");
    keeper.abort();
}

/// A certificate that is replaced is used for the next connection; a bad file is reported and the old one stays.
#[tokio::test]
async fn replaced_certificate_is_used_next() {
    let site = TestSite::secured().await;
    let servers = shared();
    let shown = ReplaceableCertificate::new(&site, servers, &servers.authority.sign_expired(&["gateway"]));
    let gateway = GatewayLaunch::new(&shown.policy).start().await;
    wait_ready_text(&gateway, "has expired").await;
    let reloads = "fencegate_zk_tls_reloads_total";

    shown.replace(&servers.authority.identify("gateways"));
    gateway.wait_ready().await;
    gateway.wait_series_at_least(reloads, &["result=\"ok\""], 1.0).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);

    fs::write(shown.file("client.pem"), "no certificate").expect("our own folder");
    gateway
        .wait_line("the bad file", |line| {
            line.text().contains("FG0510") && line.text().contains("client.pem")
        })
        .await;
    gateway.wait_series(reloads, &["result=\"bad\""], 1.0).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "the old one stays");
    let told = GatewayLaunch::new(&shown.policy).expect_start_failure().await;
    assert!(told.contains("FG0510") && told.contains("client.pem"), "{told}");
    let said = run_check_online(&shown.policy).await;
    assert!(messages(&said, "FG0512").concat().contains("client.pem"), "{said:#}");
}
