//! Tests of the challenge with which each connection begins.

use super::*;

/// Starts a server that accepts every connection, and gives the same answer to each head.
async fn start_unproven_peer(answer: &'static str) -> FakePeer {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (saw, seen) = mpsc::unbounded_channel();
    tokio::task::spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            while let Some(head) = read_until(&mut stream, b"\r\n\r\n").await {
                saw.send(head).ok();
                if answer.is_empty() || stream.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    });
    FakePeer { address, seen }
}

/// A peer that cannot prove the secret receives neither the secret nor a request.
#[tokio::test(flavor = "current_thread")]
async fn peer_without_secret_gets_no_request() {
    LocalSet::new()
        .run_until(async {
            for answer in [
                // An empty answer: the server accepts the connection and closes it.
                "",
                DONE,
                "HTTP/1.1 204 No Content\r\nAllow: GET\r\nFencing-Outcome: done\r\n\r\n",
                "HTTP/1.1 204 No Content\r\nFencing-Forwarded: proof=00\r\n\r\n",
            ] {
                let mut there = start_unproven_peer(answer).await;
                let (answer, request) = forward_request(&peer_forwarder(), there.address, 1000).await;
                assert!(is_requeued(&answer) && request.context.peer.take().is_none());
                let head = there.seen.recv().await.expect("a question");
                assert!(head.starts_with("OPTIONS * ") && !head.contains(&"5a".repeat(8)), "{head}");
                assert!(there.seen.try_recv().is_err(), "nothing else is written");
            }
        })
        .await;
}

/// If a peer accepts connections and reads nothing, at least half of the request's wait is left afterwards.
#[tokio::test(flavor = "current_thread")]
async fn unresponsive_peer_leaves_wait_time() {
    LocalSet::new()
        .run_until(async {
            let full = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let began = Instant::now();
            let (answer, _) =
                forward_request(&peer_forwarder(), full.local_addr().expect("bound"), 400).await;
            assert!(is_requeued(&answer));
            assert!(began.elapsed() < Duration::from_millis(400), "{:?}", began.elapsed());
        })
        .await;
}
