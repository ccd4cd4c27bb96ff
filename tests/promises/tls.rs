//! TLS with clients: the protocol and the certificate of a handshake, certificates that change, and which clients are
//! accepted.
//!
//! The tests cover ALPN, SNI, client certificates, connections without TLS, and early data. Certificates change under
//! load without a failed request, and a bad certificate changes nothing.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use fencegate_testkit::{
    scratch,
    terminator::{SignedCertificate, TestCa},
    wait::wait_until,
};
use fencegate_tests::{
    client::{FencingOutcome, Http1Client, Http2Client, RawClient, TestRequest, TestTlsClient},
    gateway::{Gateway, GatewayLaunch},
    policy::TestPolicy,
    site::TestSite,
};
use rustls::{
    SupportedProtocolVersion,
    version::{TLS12, TLS13},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::spawn_blocking,
};

static OLDER: &[&SupportedProtocolVersion] = &[&TLS12];
static NEWER: &[&SupportedProtocolVersion] = &[&TLS13];

/// A certificate authority of one test, and the folder of its certificates.
pub(super) struct TlsFiles {
    pub(super) authority: TestCa,
    folder: TempDir,
}

impl TlsFiles {
    pub(super) fn new() -> Self {
        Self { authority: TestCa::new(), folder: scratch::temp_dir() }
    }

    /// Writes a new certificate for a name, in place of an older one, and returns its fields for a policy.
    pub(super) fn write(&self, file: &str, name: &str) -> serde_json::Value {
        let (certificate, key) = self.authority.sign(&[name]).write(self.folder.path(), file);
        json!({"certificate_file": certificate, "key_file": key})
    }

    pub(super) fn path(&self, file: &str) -> std::path::PathBuf {
        self.folder.path().join(file)
    }

    pub(super) fn client(&self) -> TestTlsClient {
        TestTlsClient::new(self.authority.roots())
    }
}

fn with_tls(site: &TestSite, tls: serde_json::Value) -> TestPolicy {
    site.policy("gw-1").with("/listeners/public/tls", tls)
}

/// The handshake agrees on the protocol, and the server name selects the certificate.
#[tokio::test]
async fn handshake_selects_protocol_and_certificate() {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    let certificates = json!([keys.write("a", "pay.example"), keys.write("b", "*.shop.example")]);
    let gateway = Gateway::start(&with_tls(&site, json!({"certificates": certificates}))).await;
    let ask = TestRequest::post("/pay/7").field("host", "pay.example");
    for protocols in [&["h2", "http/1.1"][..], &["http/1.1"], &[]] {
        for name in ["pay.example", "eu.shop.example"] {
            let secure = keys.client().with_alpn(protocols);
            // The client checks that the certificate has this name.
            let stream = secure.connect(gateway.public, name).await.expect("accepted");
            let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
            assert_eq!(agreed.as_deref(), protocols.first().map(|first| first.as_bytes()));
            let answer = if agreed.as_deref() == Some(b"h2") {
                let streams = Http2Client::on_stream(stream, gateway.public).await.expect("speaks HTTP/2");
                streams.send(&TestRequest::post("/pay/7")).await
            } else {
                Http1Client::on_stream(stream, gateway.public)
                    .await
                    .expect("speaks HTTP/1.1")
                    .send(&ask)
                    .await
            };
            let answer = answer.expect("answered");
            assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
        }
    }
    for record in &site.origin.log().records {
        assert_eq!(record.request.field("x-forwarded-proto"), Some("https"));
    }
}

/// Only clients with a certificate of the authority come in where one is required; a stranger's is refused where it
/// is optional.
#[tokio::test]
async fn required_client_certificate_is_enforced() {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    let others = TlsFiles::new();
    keys.authority.write(&keys.path("clients.pem"));
    let tls = |auth: &str| {
        json!({
            "certificates": [keys.write("a", "pay.example")],
            "client_ca_file": keys.path("clients.pem"),
            "client_auth": auth,
        })
    };
    for (auth, without) in [("required", false), ("optional", true)] {
        let gateway = Gateway::start(&with_tls(&site, tls(auth))).await;
        let shows =
            |signed: &SignedCertificate| keys.client().with_certificate(signed.certificate(), signed.key());
        for (who, secure, comes_in) in [
            ("a friend", shows(&keys.authority.sign(&["till-7.example"])), true),
            ("a stranger", shows(&others.authority.sign(&["till-7.example"])), false),
            ("nobody", keys.client(), without),
        ] {
            let asked = async {
                let stream = secure.connect(gateway.public, "pay.example").await?;
                let mut client = Http1Client::on_stream(stream, gateway.public).await?;
                client.send(&TestRequest::post("/pay/7").field("host", "pay.example")).await
            };
            let answer = wait_until(who, asked, || gateway.log()).await;
            assert_eq!(answer.is_ok_and(|answer| answer.status == 200), comes_in, "{auth}: {who}");
        }
    }
}

/// The access log has the identity of the client's certificate, and not the one that the client claims.
#[tokio::test]
async fn certificate_identity_is_in_access_log() {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    keys.authority.write(&keys.path("clients.pem"));
    let tls = json!({
        "certificates": [keys.write("a", "pay.example")],
        "client_ca_file": keys.path("clients.pem"),
        "client_auth": "optional",
    });
    let gateway = Gateway::start(&with_tls(&site, tls).with("/log/access", "stdout")).await;
    let till = keys.authority.sign(&["till-7.example"]);
    let till = keys.client().with_certificate(till.certificate(), till.key());
    for (path, secure, known) in [("/till", till, true), ("/nobody", keys.client(), false)] {
        let stream = secure.connect(gateway.public, "pay.example").await.expect("accepted");
        let mut client = Http1Client::on_stream(stream, gateway.public).await.expect("speaks HTTP/1.1");
        // The field that the client sends about itself proves nothing.
        let ask =
            TestRequest::get(path).field("host", "pay.example").field("client-identity", "DNS:boss.example");
        assert_eq!(client.send(&ask).await.expect("answered").status, 200);
        let line = gateway.wait_line("a line", move |line| line.text().contains(path)).await.text();
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let named = (line["client_identity"].as_str(), line["client_certificate"].as_str().map(str::len));
        assert_eq!(named, if known { (Some("DNS:till-7.example"), Some(64)) } else { (None, None) });
    }
}

#[tokio::test]
async fn old_tls_version_is_refused() {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    let certificates = json!([keys.write("a", "pay.example")]);
    let tls = json!({"certificates": certificates, "min_version": "1.3"});
    let gateway = Gateway::start(&with_tls(&site, tls)).await;
    let older = keys.client().with_versions(OLDER);
    older.connect(gateway.public, "pay.example").await.expect_err("TLS 1.2");
    let newer = keys.client().with_versions(NEWER);
    newer.connect(gateway.public, "pay.example").await.expect("TLS 1.3");
}

/// New certificates are used without a failed request, and bad ones never.
#[tokio::test]
async fn certificates_rotate_without_failed_requests() {
    // Clients that never pause would slow the tests beside this one down.
    const PAUSE: Duration = Duration::from_millis(5);
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    let certificates = json!([keys.write("a", "pay.example")]);
    let gateway = Gateway::start(&with_tls(&site, json!({"certificates": certificates}))).await;
    let serial = || async {
        let stream = keys.client().connect(gateway.public, "pay.example").await.expect("accepted");
        stream.get_ref().1.peer_certificates().expect("shown")[0].to_vec()
    };
    let ask = TestRequest::get("/x").field("host", "pay.example");
    let secure = keys.client();
    let address = gateway.public;
    let over = tokio::sync::watch::Sender::new(false);
    let stop = ask.clone();
    let worker = |keeps: bool| {
        let secure = secure.clone();
        let ask = stop.clone();
        let over = over.subscribe();
        tokio::spawn(async move {
            let connect = || async {
                Http1Client::on_stream(secure.connect(address, "pay.example").await?, address).await
            };
            let mut client = connect().await.expect("accepted");
            let mut served = 0;
            while !*over.borrow() {
                if !keeps {
                    client = connect().await.expect("accepted");
                }
                assert_eq!(client.send(&ask).await.expect("answered").status, 200);
                served += 1;
                tokio::time::sleep(PAUSE).await;
            }
            served
        })
    };
    let load: Vec<_> = [true, false, false].into_iter().map(worker).collect();

    let mut before = serial().await;
    for round in 1..=3 {
        keys.write("a", "pay.example");
        let taken = ["result=\"ok\""];
        gateway.wait_series("fencegate_tls_reloads_total", &taken, f64::from(round)).await;
        let now = serial().await;
        assert_ne!(now, before, "round {round}");
        before = now;
    }
    let until = gateway.metrics().await.largest("fencegate_tls_certificate_not_after_timestamp_seconds");
    assert!(until > 2e9, "{until}");

    let sound = fs::read(keys.path("a.pem")).expect("written");
    let other = TlsFiles::new();
    let (foreign, _) = other.authority.sign(&["pay.example"]).write(other.folder.path(), "b");
    for (n, bad) in
        [sound[..sound.len() / 2].to_vec(), fs::read(foreign).expect("written")].iter().enumerate()
    {
        fs::write(keys.path("a.pem"), bad).expect("our own file");
        let told = n as f64 + 1.0;
        gateway.wait_series("fencegate_tls_reloads_total", &["result=\"bad\""], told).await;
        assert_eq!(serial().await, before, "the old one stays");
    }
    over.send_replace(true);
    for worker in load {
        assert!(worker.await.expect("no failed request") > 20);
    }
}

/// A reload uses new certificates before it is answered, and reports what is wrong with them.
///
/// An operator who has replaced a certificate reads the result in the answer to the reload.
#[tokio::test]
async fn reload_applies_and_reports_certificates() {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    let certificates = json!([keys.write("a", "pay.example")]);
    let gateway = Gateway::start(&with_tls(&site, json!({"certificates": certificates}))).await;
    let shown = async || {
        let stream = keys.client().connect(gateway.public, "pay.example").await.expect("accepted");
        stream.get_ref().1.peer_certificates().expect("shown")[0].to_vec()
    };
    let mut before = shown().await;
    // The regular look at the file may come first in one round, and not in every round.
    for round in 0..4 {
        keys.write("a", "pay.example");
        let (code, report) = gateway.reload(&[]).await;
        assert_eq!((code, &report["said"]), (Some(0), &json!([])), "{report}");
        let now = shown().await;
        assert_ne!(now, before, "round {round}");
        before = now;
    }
    fs::write(keys.path("a.pem"), "half of it").expect("our own file");
    let (_, report) = gateway.reload(&["--dry-run"]).await;
    assert_eq!(report["said"], json!([]), "nothing is taken over to be tried");
    let (_, report) = gateway.reload(&[]).await;
    let said = report["said"].to_string();
    assert!(said.contains("FG0510") && said.contains("a.pem"), "{report}");
    assert_eq!(shown().await, before, "the old one stays");
}

/// A plain request gets 400, and a handshake that does not come is not waited for beyond `tls_handshake`.
#[tokio::test]
async fn plaintext_and_silent_clients_are_rejected() {
    let site = TestSite::alone().await;
    let keys = TlsFiles::new();
    let certificates = json!([keys.write("a", "pay.example")]);
    let policy = with_tls(&site, json!({"certificates": certificates}))
        .with("/listeners/public/timeouts/tls_handshake", "400ms");
    let gateway = Gateway::start(&policy).await;
    let plain = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((plain.status, plain.reason().as_str()), (400, "malformed"));
    for said in [&b""[..], b"\x16\x03\x01\x02"] {
        let mut client = RawClient::connect(gateway.public).await.expect("listens");
        let began = Instant::now();
        client.send(said).await.expect("connected");
        wait_until("the end", client.read_response(), || gateway.log()).await.expect_err("nothing to say");
        let took = began.elapsed();
        assert!(took > Duration::from_millis(350) && took < Duration::from_secs(3), "{took:?}");
    }
    let mut garbage = tokio::net::TcpStream::connect(gateway.public).await.expect("listens");
    garbage.write_all(&[0x16; 600]).await.expect("connected");
    let mut told = Vec::new();
    wait_until("the end", garbage.read_to_end(&mut told), || gateway.log()).await.ok();
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("fencegate_client_timeouts_total", &["limit=\"tls_handshake\""]), 2.0);
    assert_eq!(metrics.sum("fencegate_tls_handshakes_total", &["result=\"failed\""]), 1.0);
    assert_eq!(site.origin.log().records.len(), 0);
}

/// A fenced request in early data is refused, because an attacker who has seen it can send it again. A proxy before the
/// gateway marks such a request (RFC 8470).
#[tokio::test]
async fn early_data_is_refused_when_fenced() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let refused = gateway.send(&TestRequest::post("/pay/7").field("early-data", "1")).await;
    assert_eq!((refused.status, refused.reason().as_str()), (425, "early-data"));
    assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched));
    assert_eq!(gateway.send(&TestRequest::get("/x").field("early-data", "1")).await.status, 200);
    assert_eq!(site.origin.log().records.len(), 1);
}

#[tokio::test]
async fn unusable_tls_files_prevent_start() {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    let pair = |file: &str| json!({"certificates": [keys.write(file, "pay.example")]});
    let start = |name: &str, spoil: &dyn Fn(&Path)| {
        let policy = with_tls(&site, pair(name));
        spoil(keys.folder.path());
        GatewayLaunch::new(&policy).expect_start_failure()
    };
    let open = start("open", &|folder| {
        fs::set_permissions(folder.join("open.key"), fs::Permissions::from_mode(0o644))
            .expect("our own file");
    });
    let gone = start("gone", &|folder| fs::remove_file(folder.join("gone.pem")).expect("our own file"));
    let swapped = start("swapped", &|folder| {
        keys.write("other", "pay.example");
        fs::copy(folder.join("other.key"), folder.join("swapped.key")).expect("our own files");
    });
    for (told, words) in [(open.await, "chmod 600"), (gone.await, "gone.pem"), (swapped.await, "swapped.key")]
    {
        assert!(told.contains("FG0510") && told.contains(words), "{told}");
    }
}

/// A TLS 1.3 client without the required certificate receives the alert, although it has already sent its request:
/// unread bytes must not turn the end of the connection into a reset that overtakes the alert.
#[tokio::test]
async fn missing_client_certificate_gets_alert() {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    keys.authority.write(&keys.path("clients.pem"));
    let certificates = json!([keys.write("a", "pay.example")]);
    let tls = json!({"certificates": certificates, "client_auth": "required", "client_ca_file": keys.path("clients.pem")});
    let gateway = Gateway::start(&with_tls(&site, tls)).await;
    let url = format!("https://{}/read", gateway.public);
    for round in 0..10 {
        let url = url.clone();
        let curl =
            move || Command::new("curl").args(["-sS", "-k", "--tlsv1.3", "--max-time", "10", &url]).output();
        let output = spawn_blocking(curl).await.expect("no panic").expect("curl is here");
        let told = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert!(!output.status.success() && told.contains("certificate required"), "round {round}: {told}");
    }
}
