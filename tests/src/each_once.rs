//! Sends one request for each of many keys.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::task::JoinSet;

use crate::client::{Http1Client, TestRequest};

const CLIENTS: usize = 16;

/// Requests the paths of the keys 0 to `keys - 1` from a gateway, and returns when all are served.
///
/// # Panics
/// If a response is not a 200.
pub async fn each_once(gateway: SocketAddr, keys: usize, path: fn(usize) -> String) {
    let next = Arc::<AtomicUsize>::default();
    let client = |next: Arc<AtomicUsize>| async move {
        let mut connection = Http1Client::connect(gateway).await.expect("listens");
        loop {
            let key = next.fetch_add(1, Ordering::Relaxed);
            if key >= keys {
                return;
            }
            let answer = connection.send(&TestRequest::post(&path(key))).await.expect("answered");
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    };
    let mut clients: JoinSet<_> = (0..CLIENTS).map(|_| client(next.clone())).collect();
    while let Some(client) = clients.join_next().await {
        client.expect("every request is answered with 200");
    }
}
