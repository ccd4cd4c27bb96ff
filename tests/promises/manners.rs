//! The response of a gateway to its client when the service ends early: a request that may have reached the service
//! always gets a response, and only a read without a key is sent again.
//!
//! A read without a key is sent again once, if a pooled connection died.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::{FencingOutcome, Http1Client, TestRequest},
    gateway::Gateway,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The reply of a service to the head of a request. The number counts earlier requests on the connection.
type ServiceBehavior = fn(&str, usize) -> ServiceReply;

/// The bytes of a reply, and the action after them.
struct ServiceReply(&'static str, AfterReply);

#[derive(PartialEq)]
enum AfterReply {
    Waits,
    Closes,
}

/// A service that replies as a [`ServiceBehavior`] says.
struct MisbehavingService {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl MisbehavingService {
    async fn start(manner: ServiceBehavior) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let noted = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, manner, noted.clone()));
            }
        });
        Self { address, seen }
    }

    /// The number of requests that have come with this request line.
    fn request_count(&self, line: &str) -> usize {
        self.seen.lock().expect("no panic").iter().filter(|head| head.starts_with(line)).count()
    }

    /// Starts a gateway that leads `/open/...` to this service without a fence, and `/pay/{account}` under a fence.
    async fn gateway(&self, site: &TestSite) -> Gateway {
        Gateway::start(&self.policy(site)).await
    }

    fn policy(&self, site: &TestSite) -> TestPolicy {
        let endpoint = json!([format!("http://{}", self.address)]);
        let open = json!({"endpoints": endpoint, "fencing": "none"});
        let policy =
            site.policy("gw-1").with("/upstreams/ledger/endpoints", endpoint).with("/upstreams/open", open);
        let policy = policy.with("/routes/1", json!({"name": "open", "upstream": "open", "match": {"path": "/open/{rest...}"}, "fence": "none"}));
        policy.with("/routes/0/match/methods", json!(["GET", "POST"]))
    }
}

async fn converse(mut stream: TcpStream, manner: ServiceBehavior, seen: Arc<Mutex<Vec<String>>>) {
    for before in 0.. {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            head.push(byte);
        }
        let head = String::from_utf8(head).expect("text");
        let length = head.to_ascii_lowercase().split_once("\r\ncontent-length: ").map_or(0, |(_, rest)| {
            rest.split("\r\n").next().and_then(|digits| digits.parse().ok()).expect("a length")
        });
        let mut body = vec![0; length];
        if stream.read_exact(&mut body).await.is_err() {
            return;
        }
        let ServiceReply(words, then) = manner(&head, before);
        seen.lock().expect("no panic").push(head);
        drop(stream.write_all(words.as_bytes()).await);
        if then == AfterReply::Closes {
            return;
        }
    }
}

const OK: ServiceReply = ServiceReply("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", AfterReply::Waits);

/// Sends a request, and returns everything that the client receives until its connection ends.
async fn send_and_read_all(gateway: &Gateway, request: &str) -> String {
    let mut stream = TcpStream::connect(gateway.public).await.expect("listens");
    stream.write_all(request.as_bytes()).await.expect("connected");
    let mut told = Vec::new();
    // A reset ends the connection, too.
    drop(wait_until("the end", stream.read_to_end(&mut told), || gateway.log()).await);
    String::from_utf8_lossy(&told).into_owned()
}

/// A service that dies behind its response head never becomes a silent close: the client gets a status.
///
/// A client that receives no byte on a reused connection assumes that its request never arrived, and sends it again: a
/// POST is then executed twice.
#[tokio::test]
async fn upstream_death_after_head_gets_response() {
    let site = TestSite::fresh().await;
    let service = MisbehavingService::start(|head, _| {
        let words = match head {
            _ if head.contains("/none ") => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
            _ if head.contains("/some ") => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
            _ if head.contains("/negative ") => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
            _ => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc",
        };
        ServiceReply(words, AfterReply::Closes)
    })
    .await;
    let gateway = service.gateway(&site).await;
    for path in ["/open/none", "/open/some", "/open/negative", "/open/bare"] {
        for round in 0..20 {
            let request = format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"
            );
            let told = send_and_read_all(&gateway, &request).await;
            let unknown = told.starts_with("HTTP/1.1 502 ") && told.contains("\"outcome\":\"unknown\"");
            assert!(unknown || told.starts_with("HTTP/1.1 200 "), "{path}, round {round}: {told:?}");
        }
        assert_eq!(service.request_count(&format!("POST {path} ")), 20, "{path}: each arrived once");
    }
}

/// Behaves like a service with a short keep-alive: closes the connection when the second request arrives.
fn close_at_second_request(head: &str, before: usize) -> ServiceReply {
    match before {
        1.. if !head.contains("/first ") => ServiceReply("", AfterReply::Closes),
        _ if head.starts_with("HEAD ") => {
            ServiceReply("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", AfterReply::Waits)
        }
        _ => OK,
    }
}

/// Only a read without body and key that a dead pooled connection lost is sent once more; all else is `unknown`.
#[tokio::test]
async fn only_reads_retry_on_dead_connection() {
    let site = TestSite::fresh().await;
    let service = MisbehavingService::start(close_at_second_request).await;
    let gateway = service.gateway(&site).await;
    for (method, path, body, status, times) in [
        ("GET", "/open/1", "", 200, 2),
        ("HEAD", "/open/2", "", 200, 2),
        ("POST", "/open/3", "", 502, 1),
        ("PUT", "/open/4", "x", 502, 1),
        ("DELETE", "/open/5", "", 502, 1),
        ("OPTIONS", "/open/6", "", 502, 1),
        ("GET", "/open/7", "x", 502, 1),
        // No fenced request is sent again, whatever its method: the first attempt may have been executed under the
        // token.
        ("GET", "/pay/8", "", 502, 1),
        ("POST", "/pay/9", "x", 502, 1),
    ] {
        // The first request leaves an idle connection to the service at the worker of this client.
        let mut client = Http1Client::connect(gateway.public).await.expect("listens");
        let first = if path.starts_with("/pay") { "/pay/first" } else { "/open/first" };
        assert_eq!(client.send(&TestRequest::post(first)).await.expect("an answer").status, 200);
        let answer =
            client.send(&TestRequest::with_method(method, path).body(body)).await.expect("an answer");
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(service.request_count(&format!("{method} {path} ")), times, "{method} {path}");
        if status == 502 {
            assert_eq!(answer.reason(), "outcome-unknown", "{method} {path}");
        }
        if path.starts_with("/pay") {
            assert_eq!(answer.outcome(), Some(FencingOutcome::Unknown), "{method} {path}");
        }
    }
}

/// A read is sent twice at most, and not again once a byte of a response has arrived.
#[tokio::test]
async fn read_retries_once_before_first_byte() {
    let site = TestSite::fresh().await;
    let service = MisbehavingService::start(|head, before| match before {
        _ if head.contains("/first ") => OK,
        _ if head.contains("/begun ") => ServiceReply("HTTP/1.1 200", AfterReply::Closes),
        _ => ServiceReply("", AfterReply::Closes),
    })
    .await;
    let gateway = service.gateway(&site).await;
    for (path, times) in [("/open/never", 2), ("/open/begun", 1)] {
        let mut client = Http1Client::connect(gateway.public).await.expect("listens");
        assert_eq!(client.send(&TestRequest::post("/open/first")).await.expect("an answer").status, 200);
        let answer = client.send(&TestRequest::get(path)).await.expect("an answer");
        assert_eq!((answer.status, answer.reason().as_str()), (502, "outcome-unknown"), "{path}");
        assert_eq!(service.request_count(&format!("GET {path} ")), times, "{path}");
    }
}

/// A response may have `response_fields` fields; one more is an unknown outcome.
#[tokio::test]
async fn response_fields_are_limited_per_upstream() {
    let site = TestSite::fresh().await;
    let service = MisbehavingService::start(|head, _| {
        let number = head.split_once("/fields-").and_then(|(_, rest)| rest.split_once(' ')?.0.parse().ok());
        let fields: String = (1..number.expect("a number")).map(|n| format!("X-{n}: {n}\r\n")).collect();
        ServiceReply(
            format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n").leak(),
            AfterReply::Waits,
        )
    })
    .await;
    for (most, policy) in [
        (100, service.policy(&site)),
        (
            256,
            service
                .policy(&site)
                .with("/upstreams/ledger/response_fields", 256)
                .with("/upstreams/open/response_fields", 256),
        ),
    ] {
        let gateway = Gateway::start(&policy).await;
        for (path, fields) in [("/open", most), ("/open", most + 1), ("/pay", most), ("/pay", most + 1)] {
            let request =
                format!("GET {path}/fields-{fields} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            let told = send_and_read_all(&gateway, &request).await;
            if fields > most {
                assert!(told.starts_with("HTTP/1.1 502 ") && told.contains("outcome-unknown"), "{told}");
                continue;
            }
            assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
            assert!((1..fields).all(|n| told.contains(&format!("x-{n}: {n}\r\n"))), "{told}");
        }
    }
}
