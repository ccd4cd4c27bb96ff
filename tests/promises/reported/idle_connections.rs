//! What a service says on a connection that nobody has asked anything on is no answer to the next request.

use fencegate_tests::{client::TestRequest, gateway::Gateway, site::TestSite};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Reported as golang/go#32310 and openshift/release#378: a server ends an idle connection with a 408, and the client
/// takes it for the answer to the request that it sends at this moment. This test covers bytes that arrive before a
/// request was sent.
#[tokio::test]
async fn unasked_answer_is_never_taken() {
    let site = TestSite::fresh().await;
    for unasked in [
        "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nunasked",
        "HTTP/1.1 200 O",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "\r\n",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut taken = Vec::new();
                    while stream.read_buf(&mut taken).await.is_ok_and(|more| more > 0) {
                        if taken.windows(4).any(|end| end == b"\r\n\r\n") {
                            taken.clear();
                            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue{unasked}");
                            if stream.write_all(answer.as_bytes()).await.is_err() {
                                return;
                            }
                        }
                    }
                });
            }
        });
        let policy =
            site.policy("gw-1").with("/upstreams/ledger/endpoints", json!([format!("http://{address}")]));
        let gateway = Gateway::start(&policy).await;
        for _ in 0..4 {
            let answer = gateway.send(&TestRequest::post("/pay/7")).await;
            assert_eq!((answer.status, &answer.body[..]), (200, &b"true"[..]), "{unasked:?}: {answer:?}");
        }
        gateway.stop().await;
        serving.abort();
    }
}
