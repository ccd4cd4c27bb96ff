//! A guard either still has every watermark that it has recorded, or refuses to start: it never loses one silently. It
//! forwards nothing that it cannot record.
//!
//! Every page of the file is damaged in turn, the disk is full, or a second process opens the store.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
};

use fencegate_tests::{
    guard::{ENSEMBLE, GuardFixture, GuardLaunch, StampedRequest},
    small_disk::SmallDisk,
};
use serde_json::Value;

/// Bytes of a page of the store.
const PAGE: usize = 4096;

async fn assert_start_refused(launch: &GuardLaunch, reason: &str) {
    let output = launch.expect_start_failure().await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(reason), "not a word of `{reason}`:\n{stderr}");
}

/// A store is made by `--init` only, and never a second time.
#[tokio::test]
async fn store_is_made_once() {
    let fixture = GuardFixture::new().await;
    let unmade = fixture.uninitialized_launch();
    assert_start_refused(&unmade, "guard --init --floor E --ensemble UUID").await;
    assert!(!unmade.store().exists());
    let launch = fixture.launch().await;
    assert_start_refused(&launch.clone().init(3), "exists already").await;
    let guard = launch.start().await;
    let announced: Value = {
        let request = fencegate_tests::client::TestRequest::get("/.fencegate/v1/guard");
        serde_json::from_slice(&guard.send(&request).await.body).expect("JSON")
    };
    assert_eq!((&announced["ensemble"], &announced["floor"]), (&ENSEMBLE.into(), &10.into()));
}

/// A second guard on the same store does not start, and the first one goes on.
#[tokio::test]
async fn second_guard_on_store_fails_start() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    assert_start_refused(guard.launch(), "FG0546: another process has").await;
    assert_eq!(
        guard.send(&StampedRequest::new("a", 20).post("/x")).await.status,
        200,
        "the first one goes on"
    );
}

/// A change of the file between a crash and the next start.
#[derive(Debug, Clone, Copy)]
enum StoreDamage {
    CutOffAt(u64),
    FlippedAt(u64),
}

impl StoreDamage {
    fn befall(self, launch: &GuardLaunch) {
        let file = OpenOptions::new().read(true).write(true).open(launch.store()).expect("there");
        match self {
            Self::CutOffAt(length) => file.set_len(length).expect("cut"),
            Self::FlippedAt(position) => {
                let mut byte = [0];
                file.read_exact_at(&mut byte, position).expect("within the file");
                file.write_all_at(&[byte[0] ^ 0x41], position).expect("written");
            }
        }
    }
}

/// Damages of three kinds: the bytes of the newest watermarks, some bytes of every page behind the header, and a truncated
/// file.
fn possible_damages(store: &[u8], newest: &[u64]) -> Vec<StoreDamage> {
    let marks = newest.iter().flat_map(|epoch| {
        let epoch = epoch.to_be_bytes();
        let found = store.windows(8).enumerate().filter(move |(_, bytes)| *bytes == epoch);
        found.map(|(position, _)| position as u64 + 7)
    });
    let pages = store.chunks(PAGE).enumerate().skip(1);
    let used = pages.filter(|(_, page)| page.iter().any(|byte| *byte != 0)).map(|(number, _)| number * PAGE);
    let last = used.clone().next_back().expect("a page in use") as u64;
    let in_pages = used.flat_map(|page| [0, 5, 17, 33, 70].map(|place| (page + place) as u64));
    let page = PAGE as u64;
    let cuts = [0, 100, page, last / 2, last - page, last - 1, last, last + page, store.len() as u64 - 1];
    marks.chain(in_pages).map(StoreDamage::FlippedAt).chain(cuts.map(StoreDamage::CutOffAt)).collect()
}

/// A damaged store is refused, or still has every watermark.
#[tokio::test]
async fn damaged_store_is_refused_or_complete() {
    const KEYS: u64 = 6;
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    for round in 1..=3 {
        for key in 0..KEYS {
            let dispatch = StampedRequest::new(&format!("k{key}"), round * 100 + key);
            assert_eq!(guard.send(&dispatch.post("/x")).await.status, 200);
        }
    }
    let crashed = guard.kill().await;
    let newest: Vec<u64> = (0..KEYS).map(|key| 300 + key).collect();
    let damages = possible_damages(&fs::read(crashed.store()).expect("there"), &newest);
    assert!(damages.len() > 12, "{damages:?}");
    let mut opened = 0;
    let mut refused = 0;
    for damage in damages {
        let launch = crashed.copy();
        damage.befall(&launch);
        let Ok(guard) = launch.try_start().await else {
            refused += 1;
            continue;
        };
        opened += 1;
        for key in 0..KEYS {
            let view = guard.admin_json(&format!("/api/v1/keys/k{key}")).await;
            let least = StampedRequest::new("k", 300 + key).token().to_string();
            assert!(view["write"].as_str() >= Some(least.as_str()), "{damage:?} has lost {least}: {view}");
        }
    }
    assert!(opened > 0 && refused > 0, "not exercised: {opened} opened, {refused} refused");
}

/// A guard that cannot record a request, because its disk is full at whatever moment, does not forward it, and ends.
#[tokio::test]
async fn failed_commit_forwards_nothing() {
    let fixture = GuardFixture::new().await;
    let launch = fixture.launch().await;
    let disk = SmallDisk::mount_below(&launch, 256 << 10);
    let guard = launch.start().await;
    let mut acknowledged = 0;
    for n in 0..10_000 {
        let key = format!("{}{n}", "k".repeat(400));
        match StampedRequest::new(&key, 20 + n).post("/x").send_to(guard.public).await {
            Ok(answer) if answer.status == 200 => acknowledged += 1,
            Ok(answer) => {
                assert_eq!(answer.field("fencing-refusal"), Some("store"), "{answer:?}");
                break;
            }
            Err(_its_guard_has_ended) => break,
        }
    }
    let status = guard.exit().await;
    assert_eq!(status.code(), Some(1), "{}", guard.log());
    assert!(guard.log().contains("the store failed"), "{}", guard.log());
    assert_eq!(fixture.origin.count("/x"), acknowledged, "forwarded what is not remembered");
    assert!(acknowledged > 0, "not exercised");
    drop(disk);
}

/// A guard whose store thread is gone forwards nothing, and ends.
#[tokio::test]
async fn store_panic_ends_guard() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.failpoint("before_guard_commit", "panic").start().await;
    let pending = guard.begin(StampedRequest::new("a", 20).post("/x"));
    let status = guard.exit().await;
    assert_eq!(status.code(), Some(1), "{}", guard.log());
    if let Ok(answer) = pending.result().await {
        assert_eq!(answer.field("fencing-refusal"), Some("store"), "{answer:?}");
    }
    assert_eq!(fixture.origin.count("/x"), 0);
}
