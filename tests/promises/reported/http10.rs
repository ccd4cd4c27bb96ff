//! A client of HTTP/1.0 that asks to keep its connection is told where it cannot, and a health check needs no `Host`.

use fencegate_tests::{
    client::RawClient,
    origin::{OriginAction, OriginReply},
    site::TestSite,
};

/// Reported by users of ApacheBench (`ab -k`) against several servers: the answer said `Connection: keep-alive` and had
/// no length, and the connection closed, so the client read an empty body and its next request failed. This test covers
/// answers over HTTP/1.0 whose end the client cannot see while the connection stays open.
#[tokio::test]
async fn kept_connection_is_promised_only_with_length() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    for (path, fields, stays) in [
        ("/chunked", "Connection: keep-alive\r\n", false),
        ("/chunked", "Connection: Keep-Alive\r\nKeep-Alive: timeout=5\r\n", false),
        ("/chunked", "", false),
        ("/length", "Connection: keep-alive\r\n", true),
        ("/empty", "Connection: keep-alive\r\n", true),
        ("/length", "", false),
    ] {
        let reply = match path {
            "/chunked" => OriginReply::with_body("hello").trailer("x-end", "1"),
            "/empty" => OriginReply::with_body("").status(204),
            _ => OriginReply::with_body("hello"),
        };
        site.origin.script(path, [OriginAction::now(reply)]);
        let mut client = RawClient::connect(gateway.public).await.expect("it listens");
        let ask = format!("GET {path} HTTP/1.0\r\nHost: a\r\n{fields}\r\n");
        client.send(&ask).await.expect("sent");
        let mut answer = client.read_head().await.expect("an answer");
        if path != "/empty" {
            client.read_body(&mut answer).await.expect("a body");
        }
        let said = answer.field("connection").unwrap_or("close").to_ascii_lowercase();
        assert_eq!(said == "keep-alive", stays, "{path} {fields:?}: {answer:?}");
        if stays {
            client.send(&ask).await.expect("it is open");
            client.read_head().await.expect("another answer");
        } else {
            assert!(client.read_response().await.is_err(), "{path} {fields:?}: it closes");
        }
    }
}

/// Reported by users of HAProxy (`option httpchk`) and of other balancers: their health check speaks HTTP/1.0 without
/// `Host`, and a server that answers only by its name counts as down. This test covers probes that name no host. A
/// browser always names one, so a rebound name is still refused, and no change is accepted without a host.
#[tokio::test]
async fn health_check_needs_no_host() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    gateway.wait_ready().await;
    for (head, status) in [
        ("GET /ready HTTP/1.0\r\n\r\n", "200"),
        ("HEAD /live HTTP/1.0\r\n\r\n", "200"),
        ("GET /metrics HTTP/1.0\r\nConnection: close\r\n\r\n", "200"),
        ("GET /api/v1/members HTTP/1.0\r\nUser-Agent: check\r\n\r\n", "200"),
        ("GET /ready HTTP/1.0\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET /ready HTTP/1.1\r\n\r\n", "421"),
        ("GET /ready HTTP/1.0\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n", "421"),
        ("POST /api/v1/drain HTTP/1.0\r\nContent-Length: 0\r\n\r\n", "421"),
    ] {
        let mut client = RawClient::connect(gateway.admin).await.expect("it listens");
        client.send(head).await.expect("sent");
        let answer = client.read_head().await.expect("an answer");
        assert_eq!(answer.word(1), status, "{head:?}: {answer:?}");
    }
    gateway.wait_ready().await;
    // Keys and routes may read the host, so a request to a service has to name it.
    let mut client = RawClient::connect(gateway.public).await.expect("it listens");
    client.send("GET /there HTTP/1.0\r\n\r\n").await.expect("sent");
    assert_eq!(client.read_head().await.expect("an answer").word(1), "400");
}
