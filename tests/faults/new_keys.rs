//! New keys arrive all the time, faster than the ZooKeeper server removes empty containers, and the number of nodes
//! levels off.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use fencegate_tests::{
    client::{Http1Client, TestRequest},
    gateway::Gateway,
    site::TestSite,
    zookeeper::send_four_letter_word,
};
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{interval, sleep},
};

/// Each client sends ten requests per second, each for a new key.
const CLIENTS: usize = 30;
const PACE: Duration = Duration::from_millis(100);
const LASTS: Duration = Duration::from_secs(5 * 60);
const LOOK: Duration = Duration::from_secs(5);
/// The nodes by which two counts may differ, because the load of the machine varies: those of one second's keys,
/// which linger for a quarter of a second.
const SLACK: usize = 300;

async fn client(gateway: SocketAddr, next: Arc<AtomicUsize>, over: Arc<AtomicBool>) {
    let mut connection = Http1Client::connect(gateway).await.expect("listens");
    let mut ticks = interval(PACE);
    while !over.load(Ordering::Relaxed) {
        ticks.tick().await;
        let key = next.fetch_add(1, Ordering::Relaxed);
        let answer = connection.send(&TestRequest::post(&format!("/pay/{key}"))).await.expect("answered");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

async fn znodes(server: SocketAddr) -> usize {
    let told = send_four_letter_word(server, "mntr").await.expect("the server is up");
    let count = told.lines().find_map(|line| line.strip_prefix("zk_znode_count")).expect("it counts");
    count.trim().parse().expect("a number")
}

/// With three hundred new keys a second for five minutes the number of nodes levels off.
#[tokio::test]
async fn new_keys_keep_node_count_level() {
    let (_zookeeper, site) = TestSite::with_own_zookeeper().await;
    let policy = |name: &str, hold| {
        site.policy(name).with("/zookeeper/session_timeout", "12s").with("/defaults/hold", hold)
    };
    let strict = policy("gw-1", json!({"mode": "strict"}));
    let cached = policy("gw-2", json!({"mode": "cached"}));
    let (one, two) = Gateway::start_both(&strict, &cached).await;
    let next = Arc::<AtomicUsize>::default();
    let over = Arc::<AtomicBool>::default();
    let begun = Instant::now();
    let mut clients: JoinSet<_> =
        (0..CLIENTS).map(|n| client([one.public, two.public][n % 2], next.clone(), over.clone())).collect();
    let mut counts = Vec::new();
    while begun.elapsed() < LASTS {
        sleep(LOOK).await;
        counts.push(znodes(site.zookeeper).await);
        println!(
            "{:?}: {} keys, {} nodes",
            begun.elapsed(),
            next.load(Ordering::Relaxed),
            counts[counts.len() - 1]
        );
    }
    over.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client.expect("every request is answered with 200");
    }
    let keys = next.load(Ordering::Relaxed);
    let minute = counts.len() / 5;
    assert!(keys as f64 / begun.elapsed().as_secs_f64() > 250.0, "not exercised: {keys} keys");
    let most = |counts: &[usize]| counts.iter().copied().max().expect("some");
    let first = most(&counts[..minute]);
    let last = most(&counts[counts.len() - minute..]);
    println!("{keys} keys; at most {first} nodes in the first minute, {last} in the last");
    assert!(last <= first + SLACK, "{first} nodes in the first minute, {last} in the last");
}
