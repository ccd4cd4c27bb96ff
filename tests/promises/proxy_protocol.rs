//! The PROXY protocol: a trusted proxy names its client, and no other connection is accepted.
//!
//! Both versions name the client, also before TLS.

use std::time::{Duration, Instant};

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::{Http1Client, RawClient, TestRequest},
    gateway::Gateway,
    site::TestSite,
};
use serde_json::json;
use tokio::io::AsyncWriteExt;

async fn gateway(site: &TestSite, trusted: &str) -> Gateway {
    let policy = site
        .policy("gw-1")
        .with("/listeners/public/proxy_protocol", "require")
        .with("/listeners/public/trusted_peers", json!([trusted]))
        .with("/listeners/public/timeouts/detect", "400ms");
    Gateway::start(&policy).await
}

async fn header_count(gateway: &Gateway, result: &str) -> f64 {
    let label = format!("result=\"{result}\"");
    gateway.metrics().await.sum("fencegate_proxy_headers_total", &[&label])
}

const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
const CLIENT: &str = "PROXY TCP4 203.0.113.7 192.0.2.1 8080 80\r\n";

#[tokio::test]
async fn trusted_proxy_names_client() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site, "127.0.0.0/8").await;
    let v2 = |command: u8| {
        let addresses = [203, 0, 113, 7, 192, 0, 2, 1, 0x1f, 0x90, 0, 80];
        [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[0x20 | command, 0x11, 0, 12], &addresses].concat()
    };
    let headers = [
        (CLIENT.as_bytes().to_vec(), "203.0.113.7"),
        (v2(1), "203.0.113.7"),
        (v2(0), "127.0.0.1"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
    ];
    for (n, (header, client)) in headers.into_iter().enumerate() {
        // Header and request arrive in one piece, and no byte behind the header is lost.
        let mut raw = RawClient::connect(gateway.public).await.expect("listens");
        raw.send([&header[..], GET.as_bytes()].concat()).await.expect("connected");
        let answer = wait_until("an answer", raw.read_response(), || gateway.log()).await.expect("answered");
        assert_eq!(answer.word(1), "200");
        let record = site.origin.wait_for_request("/x", n + 1).await;
        assert_eq!(record.request.field("x-forwarded-for"), Some(client));
    }
    assert_eq!((header_count(&gateway, "client").await, header_count(&gateway, "local").await), (2.0, 2.0));
}

/// A connection without a valid PROXY header, or with one from an untrusted proxy, is closed without a response.
#[tokio::test]
async fn connection_without_trusted_header_is_closed() {
    let site = TestSite::alone().await;
    let strict = gateway(&site, "127.0.0.0/8").await;
    for (said, result) in [
        (GET, "absent"),
        ("PROXY TCP4 203.0.113.777 192.0.2.1 8080 80\r\nGET /x HTTP/1.1\r\n\r\n", "malformed"),
        ("PROXY TCP4 203.0.113.7", ""),
        ("", ""),
    ] {
        let mut raw = RawClient::connect(strict.public).await.expect("listens");
        let began = Instant::now();
        raw.send(said).await.expect("connected");
        wait_until("the end", raw.read_response(), || strict.log()).await.expect_err("nothing is answered");
        let took = began.elapsed();
        assert!(took < Duration::from_secs(3), "{said:?}: {took:?}");
        if !result.is_empty() {
            let label = format!("result=\"{result}\"");
            strict.wait_series("fencegate_proxy_headers_total", &[&label], 1.0).await;
        }
    }
    strict.wait_series("fencegate_client_timeouts_total", &["limit=\"detect\""], 2.0).await;
    drop(strict);

    let elsewhere = gateway(&site, "10.0.0.0/8").await;
    let mut raw = RawClient::connect(elsewhere.public).await.expect("listens");
    drop(raw.send(format!("{CLIENT}{GET}")).await);
    wait_until("the end", raw.read_response(), || elsewhere.log()).await.expect_err("not believed");
    elsewhere.wait_series("fencegate_proxy_headers_total", &["result=\"untrusted\""], 1.0).await;
    assert_eq!(site.origin.log().records.len(), 0);
}

#[tokio::test]
async fn header_precedes_tls_handshake() {
    let site = TestSite::fresh().await;
    let keys = super::tls::TlsFiles::new();
    let certificates = json!([keys.write("a", "pay.example")]);
    let policy = site
        .policy("gw-1")
        .with("/listeners/public/proxy_protocol", "require")
        .with("/listeners/public/trusted_peers", json!(["127.0.0.0/8"]))
        .with("/listeners/public/tls", json!({"certificates": certificates}));
    let gateway = Gateway::start(&policy).await;
    let mut stream = tokio::net::TcpStream::connect(gateway.public).await.expect("listens");
    stream.write_all(CLIENT.as_bytes()).await.expect("connected");
    let stream = keys.client().on_stream(stream, "pay.example").await.expect("accepted");
    let mut client = Http1Client::on_stream(stream, gateway.public).await.expect("speaks HTTP/1.1");
    let ask = TestRequest::get("/x").field("host", "pay.example");
    assert_eq!(client.send(&ask).await.expect("answered").status, 200);
    let record = site.origin.wait_for_request("/x", 1).await;
    assert_eq!(record.request.field("x-forwarded-for"), Some("203.0.113.7"));
    assert_eq!(record.request.field("x-forwarded-proto"), Some("https"));
}
