//! A tenure that is kept between requests is worth nothing once its session could be over.

use std::time::{Duration, Instant};

use fencegate::demo::child::Signal;
use fencegate_tests::{
    client::Ask,
    gateway::Gateway,
    history::History,
    link::FaultyLink,
    load::{Load, Plan},
    origin::Log,
    policy::Policy,
    site::Site,
};
use serde_json::json;

const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

fn keeping(site: &Site, name: &str) -> Policy {
    site.policy(name).with("/defaults/hold", json!({"mode": "cached", "linger": "60s"}))
}

/// How a gateway loses its session unawares.
#[derive(Debug, Clone, Copy)]
enum Accident {
    Stopped,
    CutOff,
}

/// The key is warm: no word to ZooKeeper stands between a request and its first byte.
async fn a_warm_key_after(accident: Accident) {
    let site = Site::fresh().await;
    let link = FaultyLink::to(site.zookeeper).await;
    let policy = keeping(&site, "victim").with("/zookeeper/servers", json!([link.address().to_string()]));
    let next = keeping(&site, "next");
    let (victim, next) = tokio::join!(Gateway::start(&policy), Gateway::start(&next));
    assert_eq!(victim.send(&Ask::post("/pay/7")).await.status, 200);
    let old = site.origin.request("/pay/7", 1).await.stamped();

    let before = Instant::now();
    match accident {
        Accident::Stopped => victim.signal(Signal::STOP),
        Accident::CutOff => link.cut(),
    }
    let latch = site.origin.holds("/pay/7");
    let taken = next.begin(Ask::post("/pay/7"));
    let newer = site.origin.request("/pay/7", 2).await.stamped();
    // Read by a stopped victim only when it wakes.
    let asked: Vec<_> = (0..8).map(|_| victim.begin(Ask::post("/pay/7").field("Prefer", "wait=1"))).collect();
    victim.signal(Signal::CONT);

    for asked in asked {
        let answer = asked.answer().await;
        assert!(matches!(answer.status, 423 | 503), "{accident:?}: {answer:?}");
    }
    let written = site.origin.log().bytes_since("victim", before);
    assert!(written.is_empty(), "{accident:?}: {}", String::from_utf8_lossy(&written));
    latch.let_go();
    assert_eq!(taken.answer().await.status, 200);

    link.mend();
    victim.becomes_ready().await;
    let answer = victim.send(&Ask::post("/pay/7")).await;
    assert_eq!(answer.status, 200, "serves again by itself");
    assert!(old < newer && Some(newer) < answer.token(), "{old} {newer} {answer:?}");
    History::of(&site.origin.log()).assert_holds();
}

#[tokio::test]
async fn a_gateway_that_was_stopped_writes_not_one_byte_under_a_tenure_it_kept() {
    a_warm_key_after(Accident::Stopped).await;
}

#[tokio::test]
async fn a_gateway_that_is_cut_off_writes_not_one_byte_under_a_tenure_it_kept() {
    a_warm_key_after(Accident::CutOff).await;
}

/// The whole queue of a key goes through the check, not only its first.
#[tokio::test]
async fn stopping_gateways_with_hot_keys_breaks_no_promise() {
    let site = Site::fresh().await.comparing();
    site.origin.works_for(Duration::from_millis(5));
    let (victim, next) = (keeping(&site, "victim"), keeping(&site, "next"));
    let (victim, next) = tokio::join!(Gateway::start(&victim), Gateway::start(&next));
    let plan = Plan {
        gateways: vec![victim.public, next.public],
        paths: (0..2).map(|key| format!("/pay/{key}")).collect(),
        clients: 8,
        requests: 5000,
        pause: Duration::ZERO,
    };
    let load = Load::start("load", &plan);
    for _ in 0..2 {
        served(&site, "victim", 30).await;
        victim.signal(Signal::STOP);
        // Until the session is over, every key that the victim holds is blocked.
        tokio::time::sleep(SESSION_TIMEOUT).await;
        served(&site, "next", 60).await;
        victim.signal(Signal::CONT);
    }
    served(&site, "victim", 30).await;
    let told = load.stop().await;
    let history = History::of(&site.origin.log()).with(&told);
    history.assert_holds();
    assert!(history.hand_overs() >= 4, "not exercised: {} hand-overs", history.hand_overs());
}

/// Waits until a gateway has had so many further requests at the origin.
async fn served(site: &Site, gateway: &str, count: usize) {
    let through = |log: &Log| log.records.iter().filter(|record| record.gateway == gateway).count();
    let before = through(&site.origin.log());
    let more = |log: &Log| (through(log) >= before + count).then_some(());
    site.origin.when(&format!("{count} more through {gateway}"), more).await;
}
