//! A client of HTTP/1.0 that asks to keep its connection is told where it cannot.

use fencegate_tests::{
    client::RawClient,
    origin::{OriginAction, OriginReply},
    site::TestSite,
};

/// Reported by users of ApacheBench (`ab -k`) against several servers: the answer said `Connection: keep-alive`, had no length, and
/// the connection closed, so the client took an empty body and its next request broke. The kind: an answer over HTTP/1.0 whose end
/// the client cannot see while the connection stays open.
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
