//! Many leases: their memory, a storm of renewals, and gateways that are killed in turn. By the answers to their
//! clients, no two clients ever hold one key.
//!
//! There are 5,000 leases. Half of the renewals in a storm are lost. 200 clients hold leases while three gateways are
//! killed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use fencegate_policies::token::FencingToken;
use fencegate_testkit::child::Signal;
use fencegate_tests::{
    gateway::Gateway,
    leases::{ClientLease, LeaseTokens, acquire_request, json_body},
    site::TestSite,
};
use futures_util::{StreamExt as _, stream};
use serde_json::json;

/// The number of leases that the issue which asked for leases demanded.
const MANY: usize = 5000;
const AT_ONCE: usize = 64;
/// Renewals at the same time: so many connections fit into the backlog of a listener.
const IN_A_STORM: usize = 512;

/// Five thousand leases take bounded memory, and all are renewed in a storm of renewals.
#[tokio::test]
async fn five_thousand_leases_survive_renewal_storm() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy =
        tokens.policy(&site, "gw-1").with("/leases/per_principal", MANY).with("/leases/default_ttl", "30s");
    let gateway = Gateway::start(&policy).await;
    let before = gateway.resident();
    let asked = stream::iter(0..MANY).map(|n| {
        let gateway = &gateway;
        async move {
            ClientLease::from_response(
                &gateway.send(&acquire_request(&json!({"keys": [format!("job/{n}")]}))).await,
            )
        }
    });
    let begun = Instant::now();
    let leases: Vec<ClientLease> = asked.buffer_unordered(AT_ONCE).collect().await;
    let taken = begun.elapsed();
    let each = (gateway.resident() - before) / MANY;
    let begun = Instant::now();
    let renewed = stream::iter(&leases).map(|lease| lease.renew(&gateway)).buffer_unordered(AT_ONCE);
    let renewed: Vec<u16> = renewed.map(|answer| answer.status).collect().await;
    println!("{MANY} leases: {taken:?} to take, {each} bytes each, {:?} to renew all", begun.elapsed());
    assert!(renewed.iter().all(|status| *status == 200), "not all were renewed");
    // Renew as fast as possible. For every second lease the client abandons a first renewal, and cannot know whether
    // it arrived.
    let begun = Instant::now();
    let storm = stream::iter(leases.iter().enumerate()).map(async |(n, lease)| {
        if n % 2 == 0 {
            drop(tokio::time::timeout(Duration::from_millis(n as u64 % 16), lease.renew(&gateway)).await);
        }
        lease.renew(&gateway).await.status
    });
    let renewed: Vec<u16> = storm.buffer_unordered(IN_A_STORM).collect().await;
    println!(
        "{MANY} renewals, {IN_A_STORM} at once, half of them lost and asked again: {:?}",
        begun.elapsed()
    );
    assert!(renewed.iter().all(|status| *status == 200), "not all were renewed");
    gateway.wait_series("fencegate_leases", &["state=\"held\""], MANY as f64).await;
    // A cached key may take 8 KiB. A lease has in addition a document, a task, and the task of its node.
    assert!(each < 24 << 10, "{each} bytes for a lease");
}

/// For each key, the end of the latest hold by the responses to its clients, and its token.
#[derive(Default)]
struct LeaseEnds(Mutex<HashMap<String, (Instant, FencingToken)>>);

impl LeaseEnds {
    /// Records that a client holds the key from `from` until `until`, and asserts that no other client held it at
    /// `from`.
    fn record_hold(&self, key: &str, from: Instant, until: Instant, token: FencingToken) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, older)) = all.get(key) {
            assert!(token >= *older, "{key}: {token} after {older}");
            assert!(token == *older || from > *before, "{key}: two hold at once, by {:?}", *before - from);
        }
        all.insert(key.to_owned(), (until, token));
    }

    /// Records that the client stops to rely on its lock now.
    fn release(&self, key: &str, token: FencingToken) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(key.to_owned(), (Instant::now(), token));
    }
}

const LEASES: usize = 200;
const LONG: Duration = Duration::from_secs(45);

/// A client that takes the lock of a key, renews and releases it, again and again, each time through the next
/// gateway. Returns how often it got the lock.
async fn client(
    n: usize,
    gateways: Arc<Mutex<Vec<Arc<Gateway>>>>,
    told: Arc<LeaseEnds>,
    end: Instant,
) -> usize {
    let key = format!("job/{}", n / 2);
    let mut held = 0;
    let mut turn = n;
    while Instant::now() < end {
        turn += 1;
        let any = {
            let all = gateways.lock().unwrap_or_else(PoisonError::into_inner);
            all[turn % all.len()].clone()
        };
        let body = json!({"keys": [&key], "ttl_ms": 2000, "wait_ms": 3000});
        let asked = Instant::now();
        let Ok(answer) = acquire_request(&body).send_to(any.public).await else { continue };
        if answer.status != 201 {
            continue;
        }
        let lease = ClientLease::from_response(&answer);
        let token = lease.token();
        held += 1;
        // A hold lasts from the response until `held_for_ms` after the request was sent. At no time in it may
        // another client hold the key.
        let until = |document: &serde_json::Value, asked: Instant| {
            asked + Duration::from_millis(document["held_for_ms"].as_u64().unwrap_or_default())
        };
        told.record_hold(&key, Instant::now(), until(&lease.document, asked), token);
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(150)).await;
            let asked = Instant::now();
            let path = format!("/.fencegate/v1/leases/{}/renew", lease.reference);
            let renewed =
                lease.with_lease(fencegate_tests::client::TestRequest::post(&path)).send_to(any.public).await;
            match renewed {
                Ok(answer) if answer.status == 200 => {
                    told.record_hold(&key, Instant::now(), until(&json_body(&answer), asked), token);
                }
                _ => break,
            }
        }
        // Record the release before it is sent: the client does not rely on the lock from here on.
        let path = format!("/.fencegate/v1/leases/{}", lease.reference);
        told.release(&key, token);
        let release = fencegate_tests::client::TestRequest::with_method("DELETE", &path);
        drop(lease.with_lease(release).send_to(any.public).await);
    }
    held
}

/// No two of two hundred lease clients hold one key while three gateways are killed in turn.
#[tokio::test]
async fn leases_never_overlap_despite_gateway_kills() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policies: Vec<_> = (1..=3).map(|n| tokens.policy(&site, &format!("gw-{n}"))).collect();
    let mut started = Vec::new();
    for policy in &policies {
        started.push(Arc::new(Gateway::start(policy).await));
    }
    let gateways = Arc::new(Mutex::new(started));
    let told = Arc::<LeaseEnds>::default();
    let end = Instant::now() + LONG;
    let clients: Vec<_> =
        (0..LEASES).map(|n| tokio::spawn(client(n, gateways.clone(), told.clone(), end))).collect();
    let mut kills = 0;
    while Instant::now() + Duration::from_secs(5) < end {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let place = kills % policies.len();
        let victim = gateways.lock().unwrap_or_else(PoisonError::into_inner)[place].clone();
        victim.signal(Signal::KILL);
        kills += 1;
        let next = Arc::new(Gateway::start(&policies[place]).await);
        gateways.lock().unwrap_or_else(PoisonError::into_inner)[place] = next;
    }
    let mut held = 0;
    for client in clients {
        held += client.await.expect("no two held");
    }
    println!("{LEASES} clients, {kills} kills, {held} leases were held, no two of one key at once");
    assert!(kills >= 6 && held > 5 * LEASES, "not exercised: {kills} kills, {held} leases");
}
