//! Bodies that are here in full take the memory that they may, and no more: what finds no room is told so, and nobody else
//! is harmed.

use std::time::Duration;

use fencegate_tests::{
    client::{Ask, Outcome, Raw, Streams},
    gateway::{Gateway, Launch},
    history::History,
    origin::{Act, Reply},
    patience::patiently,
    site::Site,
};
use serde_json::json;
use tokio::{task::JoinSet, time::timeout};

const MIB: usize = 1 << 20;
const CONNECTIONS: usize = 5;
const STREAMS: usize = 100;

/// The requests of the flood so far: the number refused, and the number that wait for the key with their bodies.
async fn counted(gateway: &Gateway) -> (f64, f64) {
    let metrics = gateway.metrics().await;
    let refused = metrics.sum("fencegate_rejections_total", &["reason=\"overloaded\""]);
    (refused, metrics.sum("fencegate_lock_waiters", &[]))
}

#[tokio::test]
async fn a_flood_of_bodies_is_refused_in_part_and_kills_nobody() {
    let site = Site::alone().await;
    let policy = site
        .policy("gw-1")
        // The flood keeps a small machine busy. A long timeout keeps the session alive, because this test is not
        // about sessions.
        .with("/zookeeper/session_timeout", "30s")
        .with("/routes/0/fence/queue", 1000)
        .with("/routes/0/fence/wait", "60s")
        .with("/listeners/public/timeouts/request_body", "60s");
    let gateway = Launch::new(&policy).with_memory(512 * MIB).start().await;
    gateway.becomes_ready().await;
    let holder = site.origin.holds_one(&gateway, Ask::post("/pay/7")).await;

    let mut flood = JoinSet::new();
    let ask = Ask::post("/pay/7").body(vec![b'x'; MIB - 1]);
    for _ in 0..CONNECTIONS {
        let streams = Streams::connect(gateway.public).await.expect("listens");
        for _ in 0..STREAMS {
            flood.spawn(streams.send(&ask));
        }
        // The connection lives as long as one of its requests does.
        flood.spawn(async move { streams.closed().await.and(Err("closed".to_owned())) });
    }
    let all = (CONNECTIONS * STREAMS) as f64;
    let settled = async {
        while {
            let (refused, waiting) = counted(&gateway).await;
            refused + waiting < all
        } {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // Half a gigabyte takes a while on a busy machine.
    timeout(Duration::from_secs(60), settled).await.unwrap_or_else(|_| panic!("{}", gateway.log()));
    let (refused, waiting) = counted(&gateway).await;
    println!("{refused} refused, {waiting} wait, {} MiB at most", gateway.peak() / MIB);
    assert!(refused > 0.0 && waiting > 20.0, "{refused} refused, {waiting} wait");
    let metrics = gateway.metrics().await;
    let (bytes, limit) =
        (metrics.sum("fencegate_buffered_bytes", &[]), metrics.sum("fencegate_buffered_limit_bytes", &[]));
    assert!(bytes > 0.0 && bytes <= limit && limit < 256.0 * MIB as f64, "{bytes} of {limit}");

    // Others are served meanwhile, with a body and without.
    for round in 0..5 {
        for ask in [Ask::get("/x"), Ask::post("/pay/8").body(vec![b'y'; 20_000])] {
            let answer = gateway.send(&ask).await;
            assert_eq!(answer.status, 200, "round {round}: {answer:?}");
        }
    }
    let mut told = 0.0;
    while told < refused {
        let answer = flood.join_next().await.expect("there are more").expect("no panic").expect("an answer");
        assert_eq!((answer.status, answer.reason().as_str()), (503, "overloaded"), "{answer:?}");
        assert_eq!(answer.outcome(), Some(Outcome::NotDispatched));
        assert!(answer.field("retry-after").is_some());
        told += 1.0;
    }
    flood.shutdown().await;
    assert_eq!(holder.finishes().await.status, 200);
    gateway.gauge_becomes("fencegate_buffered_bytes", 0.0).await;
    assert_eq!(gateway.send(&Ask::post("/pay/7").body(vec![b'z'; MIB])).await.status, 200);
    History::of(&site.origin.log()).assert_holds();
}

/// The request was dispatched, so its answer cannot be refused any more.
#[tokio::test]
async fn an_answer_without_room_is_passed_on_while_it_comes() {
    let site = Site::fresh().await;
    let limits = json!({"buffered": "100KiB", "max_body": "72KiB"});
    let gateway = Gateway::start(&site.policy("gw-1").with("/listeners/public/limits", limits)).await;
    let body: Vec<u8> = (0..500_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    site.origin.script("/pay/7", [Act::now(Reply::with_body(body.clone()))]);
    let answer = gateway.send(&Ask::post("/pay/7")).await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(Outcome::Done)));
    assert!(answer.body == body, "{} bytes", answer.body.len());
    let metrics = gateway.metrics().await;
    assert!(metrics.sum("fencegate_buffered_without_room_total", &["kind=\"answer\""]) > 0.5);
    assert_eq!(gateway.send(&Ask::post("/pay/7").body(vec![1; 50_000])).await.status, 200);
    gateway.gauge_becomes("fencegate_buffered_bytes", 0.0).await;
}

/// A body that can never find room is refused for good. The client is not told to come again.
#[tokio::test]
async fn a_body_that_could_never_find_room_is_too_large_and_not_told_to_come_again() {
    let site = Site::fresh().await;
    let limits = json!({"buffered": "100KiB", "max_body": "10MiB"});
    let gateway = Gateway::start(&site.policy("gw-1").with("/listeners/public/limits", limits)).await;
    gateway.says("that this is too little", |line| line.field("code") == "FG0142").await;
    let announced = gateway.send(&Ask::post("/pay/7").body(vec![1; 75 * 1024 + 1])).await;
    assert_eq!((announced.status, announced.reason().as_str()), (413, "body-too-large"));
    assert_eq!((announced.outcome(), announced.field("retry-after")), (Some(Outcome::NotDispatched), None));
    let mut unannounced = Raw::connect(gateway.public).await.expect("listens");
    let piece = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    let head = "POST /pay/7 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    unannounced.say(format!("{head}{}", piece.repeat(19))).await.expect("connected");
    let answer = patiently("an answer", unannounced.answer(), || gateway.log()).await.expect("answered");
    assert_eq!((answer.word(1), answer.field("fencing-outcome")), ("413", Some("not-dispatched")));
    assert_eq!(site.origin.log().records.len(), 0, "nothing of them was sent");
    assert_eq!(
        gateway.send(&Ask::post("/pay/7").body(vec![1; 75 * 1024])).await.status,
        200,
        "all that there is"
    );
    gateway.gauge_becomes("fencegate_buffered_bytes", 0.0).await;
}
