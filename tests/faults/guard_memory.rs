//! What a guard takes for every key that it remembers, measured at its process.
//!
//! It is no more than the runbook states, and no more after an orderly restart.

use fencegate_tests::guard::{Guard, GuardFixture, StampedRequest};

/// Bytes for each key, as stated in the runbook (*Sizing*).
const MOST: usize = 400;

fn key(number: u64) -> String {
    format!("account/{number}")
}

async fn use_keys(guard: &Guard, keys: std::ops::Range<u64>) {
    let keys: Vec<u64> = keys.collect();
    for some in keys.chunks(64) {
        let begun: Vec<_> = some
            .iter()
            .map(|number| guard.begin(StampedRequest::new(&key(*number), 100 + number).post("/x")))
            .collect();
        for pending in begun {
            assert_eq!(pending.answer().await.status, 200);
        }
    }
    guard.wait_gauge("fencegate_guard_keys_at_work", 0.0).await;
}

/// A used key takes no more memory than the runbook states. Both numbers of keys are just above one at which the
/// table of keys doubles: there the memory for each key is largest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn used_key_stays_within_runbook_memory() {
    const FEW: u64 = 7_500;
    const MANY: u64 = 60_000;
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    use_keys(&guard, 0..FEW).await;
    let few = guard.resident();
    use_keys(&guard, FEW..MANY).await;
    let many = guard.resident();
    let each = many.saturating_sub(few) / usize::try_from(MANY - FEW).expect("small");
    println!("{few} bytes with {FEW} keys, {many} with {MANY}: {each} a key");
    assert!(each <= MOST, "{each} bytes a key");
    // Neither an orderly restart nor the repeated use of these keys takes more memory.
    let guard = guard.stop().await.start().await;
    let again = guard.resident();
    println!("{again} bytes after an orderly restart");
    // Allow a fiftieth more: two processes with the same content differ a little in resident pages.
    let most = many + many / 50;
    assert!(again <= most, "{again} after an orderly restart, {many} before");
}
