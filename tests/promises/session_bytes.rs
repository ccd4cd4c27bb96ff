//! However many keys a gateway caches, its sessions stay so small that the ensemble survives their end
//! (ZOOKEEPER-4306).
//!
//! There are 3,400 keys with long names, and 8,000 among the faults. Each session has at most 512 KiB of paths.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use fencegate_testkit::{child::Signal, wait::PATIENCE};
use fencegate_tests::{
    client::{Http1Client, TestRequest},
    effort::effort,
    ensemble::{Ensemble, SERVERS},
    gateway::Gateway,
    site::TestSite,
};
use serde_json::json;
use tokio::task::JoinSet;

/// The number of keys in each run, and in a long run.
const KEYS: [usize; 2] = [3400, 8000];
const CLIENTS: usize = 64;
const MOST_BYTES: usize = 512 * 1024;

/// The sum of the path lengths of each session's nodes, from a dump of the leader.
fn path_bytes(dump: &str) -> BTreeMap<&str, usize> {
    let mut sessions = BTreeMap::new();
    let mut session = "";
    let ephemerals = dump.lines().skip_while(|line| !line.starts_with("Sessions with Ephemerals")).skip(1);
    for line in ephemerals.take_while(|line| !line.starts_with("Connections")) {
        match line.strip_prefix('\t') {
            Some(path) => *sessions.entry(session).or_default() += path.len(),
            None => session = line.trim_end_matches(':'),
        }
    }
    sessions
}

/// A path with a key of 440 bytes: all keys together exceed the bound of the sessions by far.
fn path(key: usize) -> String {
    format!("/pay/{key:0>430}")
}

async fn work(gateway: std::net::SocketAddr, next: Arc<AtomicUsize>, keys: usize) {
    let mut connection = Http1Client::connect(gateway).await.expect("listens");
    loop {
        let key = next.fetch_add(1, Ordering::Relaxed);
        if key >= keys {
            return;
        }
        let answer = connection.send(&TestRequest::post(&path(key))).await.expect("answered");
        assert_eq!(answer.status, 200, "key {key}: {answer:?}");
    }
}

/// With thousands of keys each session stays within its bound, and the ensemble survives the kill of their gateway.
#[tokio::test]
async fn sessions_stay_small_and_ensemble_survives() {
    let ensemble = Ensemble::start().await;
    let site = TestSite::at(ensemble.address(0)).await;
    let policy = |name: &str| {
        site.policy(name)
            .with("/zookeeper/servers", json!(ensemble.addresses()))
            .with("/zookeeper/session_timeout", "6s")
            .with("/zookeeper/sessions", 2)
            .with_linger("5m")
            .with("/routes/0/fence/wait", "15s")
    };
    let gateway = Gateway::start(&policy("gw-1")).await;
    let leader = ensemble.leader().await;
    let keys = effort(KEYS[0], KEYS[1]);
    let begun = Instant::now();
    let next = Arc::<AtomicUsize>::default();
    let mut clients: JoinSet<_> = (0..CLIENTS).map(|_| work(gateway.public, next.clone(), keys)).collect();
    let mut largest: usize = 0;
    let mut told: f64 = 0.0;
    let mut look = tokio::time::interval(Duration::from_millis(500));
    loop {
        tokio::select! {
            client = clients.join_next() => match client {
                Some(client) => client.expect("every request is answered with 200"),
                None => break,
            },
            _ = look.tick() => {
                told = told.max(gateway.metrics().await.largest("fencegate_zk_ephemeral_bytes"));
                let dump = ensemble.ask(leader, "dump").await;
                largest = largest.max(path_bytes(&dump).into_values().max().unwrap_or_default());
            }
        }
    }
    println!("{keys} keys took {:?}; largest session {largest} bytes, told {told}", begun.elapsed());
    assert!(largest <= MOST_BYTES && told <= MOST_BYTES as f64, "{largest} bytes, told {told}");
    assert!(largest >= MOST_BYTES / 2, "not exercised: {largest} bytes");
    assert_eq!(site.origin.log().records.len(), keys);

    gateway.signal(Signal::KILL);
    let gone = async {
        while !path_bytes(&ensemble.ask(leader, "dump").await).is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the sessions of a killed gateway end");
    ensemble.wait_serving().await;
    for server in 0..SERVERS {
        let address = json!([ensemble.address(server).to_string()]);
        let policy = policy(&format!("after-{server}")).with("/zookeeper/servers", address);
        let gateway = Gateway::start(&policy).await;
        assert_eq!(gateway.send(&TestRequest::post(&path(server))).await.status, 200, "server {server}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_added_up_per_session() {
        let dump = "SessionTracker dump:\nSession Sets (1)/(1):\n2 expire at ..:\n\t0x1\nephemeral nodes dump:\n\
                    Sessions with Ephemerals (2):\n0x1:\n\t/a\n\t/bcd\n0x2:\n\t/ef\nConnections dump:\n\t0x3\n";
        assert_eq!(path_bytes(dump), BTreeMap::from([("0x1", 6), ("0x2", 3)]));
    }
}
