//! A gateway for tests that answers every request with one status.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use super::lease_client::{GatewayEndpoint, GatewayEndpoints};

/// Lives as long as the runtime of the test.
pub(super) struct FakeGateway {
    endpoint: GatewayEndpoint,
    requests: Arc<AtomicUsize>,
}

impl FakeGateway {
    /// `status` is the status of every answer. Answers have no body.
    pub(super) async fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let host = listener.local_addr().expect("bound").to_string();
        let requests = Arc::<AtomicUsize>::default();
        let counted = requests.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, status, counted.clone()));
            }
        });
        Self { endpoint: GatewayEndpoint { host, speaks_tls: false }, requests }
    }

    pub(super) fn endpoint(&self) -> GatewayEndpoint {
        self.endpoint.clone()
    }

    pub(super) fn endpoints(&self) -> GatewayEndpoints {
        GatewayEndpoints { endpoints: vec![self.endpoint()], bearer: None, secured: None }
    }

    /// The number of requests so far.
    pub(super) fn request_count(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

/// Answers requests without a body.
async fn serve(client: TcpStream, status: u16, requests: Arc<AtomicUsize>) {
    let mut lines = BufReader::new(client).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.is_empty() {
            continue;
        }
        requests.fetch_add(1, Ordering::Relaxed);
        let length = if status == 204 { "" } else { "content-length: 0\r\n" };
        let answer = format!("HTTP/1.1 {status} x\r\n{length}\r\n");
        if lines.get_mut().get_mut().write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
