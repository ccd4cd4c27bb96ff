//! The store of a guard that is moved from its file into a database keeps its decisions: what the old guard refused the
//! new ones refuse, what was done once is not done again, and what was in doubt stays closed. No guard opens the file
//! any more.
//!
//! The store moves under load, after an orderly end and after a kill. The command is killed at each of its steps, and
//! completes the move when it runs again. Random requests are decided as the old guard would decide them.

mod decisions;
mod killed;
mod load;

use std::time::Duration;

use fencegate_testkit::{
    child::Signal,
    postgres::{self, TestDatabase},
};
use fencegate_tests::{
    client::FencingOutcome,
    gateway::{command, write_policy},
    guard::{Guard, GuardFixture, GuardLaunch, StampedRequest, assert_refused},
    held_request::HeldRequest,
    migration::StoreMigration,
    origin::{OriginAction, OriginReply},
    shared_database::{MAX_EXECUTION, SharedDatabase},
};
use serde_json::json;

async fn database() -> TestDatabase {
    tokio::task::spawn_blocking(postgres::fresh_database).await.expect("no panic")
}

/// A guard whose store is a file, and a second guard that takes that store over into a database.
struct MigrationFixture {
    beside: GuardFixture,
    sharing: SharedDatabase,
    database: TestDatabase,
    alone: GuardLaunch,
    shared: GuardLaunch,
    migration: StoreMigration,
}

impl MigrationFixture {
    async fn fresh() -> Self {
        let fixture = GuardFixture::new().await;
        let database = database().await;
        let sharing = SharedDatabase::new(&database.url());
        // Both guards have the same times.
        let alone = fixture.launch().await;
        let file = alone.store().display().to_string();
        let alone = sharing.guard(alone).with("/store", json!({ "redb": file }));
        let shared = sharing.guard(alone.clone());
        let migration = StoreMigration::new(&alone.store(), &shared);
        Self { beside: fixture, sharing, database, alone, shared, migration }
    }

    /// Sends the dispatch, and asserts that it is admitted.
    async fn assert_admitted(&self, guard: &Guard, dispatch: StampedRequest) {
        let answer = guard.send(&dispatch.post("/pay")).await;
        assert_eq!(
            (answer.status, answer.outcome()),
            (200, Some(FencingOutcome::Done)),
            "{dispatch:?}: {answer:?}"
        );
    }

    async fn assert_refused(&self, guard: &Guard, dispatch: StampedRequest, reason: &str) {
        assert_refused(&guard.send(&dispatch.post("/late")).await, reason);
    }

    async fn assert_no_guard_opens_file(&self) {
        let output = self.alone.expect_start_failure().await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("FG0545") && stderr.contains("store.postgres"), "{stderr}");
    }
}

/// The guards of the database decide with the watermarks, operations and doubts of the old guard's file.
#[tokio::test]
async fn migration_keeps_watermarks_and_operations() {
    let fixture = MigrationFixture::fresh().await;
    let patient = fixture.alone.clone().with("/max_execution", "6s");
    let alone = patient.start().await;
    for dispatch in [
        StampedRequest::new("a", 30),
        StampedRequest::new("a", 30).with_dispatch(2),
        StampedRequest::new("r", 35),
        StampedRequest::new("r", 40).shared(),
        StampedRequest::new("s", 41).shared(),
    ] {
        fixture.assert_admitted(&alone, dispatch).await;
    }
    let receipt =
        OriginReply::with_body(b"{\"id\": 7}\0\xff".as_slice()).status(201).field("Location", "/pay/7");
    fixture.beside.origin.script("/once", [OriginAction::now(receipt)]);
    let first = alone.send(&StampedRequest::new("o", 50).once(1).post("/once")).await;
    assert_eq!(first.status, 201);
    fixture.beside.origin.script("/broken", [OriginAction::Reset]);
    assert_eq!(alone.send(&StampedRequest::new("u", 60).once(2).post("/broken")).await.status, 502);
    let last = fixture.beside.origin.wait_for_request("/broken", 1).await.whole.expect("read");
    let _left = alone.stop().await;

    let report = fixture.migration.expect_outcome("moved").await;
    assert_eq!((&report["keys"], &report["operations"]), (&json!(5), &json!(2)), "{report}");
    assert_eq!((&report["operations_unknown"], &report["doubts"]), (&json!(1), &json!(1)), "{report}");
    assert_eq!((&report["highest"], &report["closed_keys"]), (&json!(60), &json!(0)), "{report}");
    let one = fixture.shared.start().await;
    one.wait_ready().await;
    fixture.assert_no_guard_opens_file().await;
    let two = fixture.sharing.guard(fixture.alone.clone()).start().await;
    two.wait_ready().await;
    for (guard, epoch) in [(&one, 72), (&two, 73)] {
        fixture.assert_refused(guard, StampedRequest::new("a", 29), "stale").await;
        fixture.assert_refused(guard, StampedRequest::new("a", 30).with_dispatch(2), "duplicate").await;
        fixture.assert_refused(guard, StampedRequest::new("r", 34).shared(), "stale").await;
        fixture.assert_refused(guard, StampedRequest::new("r", 40), "stale").await;
        fixture.assert_refused(guard, StampedRequest::new("s", 41), "stale").await;
        fixture.assert_refused(guard, StampedRequest::new("new", 10), "floor").await;
        let again = guard.send(&StampedRequest::new("o", 70).once(1).post("/once")).await;
        assert_eq!((again.status, again.outcome()), (201, Some(FencingOutcome::Replayed)), "{again:?}");
        assert_eq!((&again.body, again.field("location")), (&first.body, Some("/pay/7")));
        fixture.assert_refused(guard, StampedRequest::new("u", 71).once(2), "outcome-unknown").await;
        fixture.assert_refused(guard, StampedRequest::new("u", epoch), "in-doubt").await;
    }
    fixture.assert_admitted(&one, StampedRequest::new("a", 30).with_dispatch(3)).await;
    fixture.assert_admitted(&two, StampedRequest::new("r", 39).shared()).await;
    assert_eq!((fixture.beside.origin.count("/once"), fixture.beside.origin.count("/late")), (1, 0));
    for epoch in 80.. {
        let next = one.send(&StampedRequest::new("u", epoch).post("/next")).await;
        if next.status == 200 {
            break;
        }
        assert!(["busy", "in-doubt"].contains(&next.reason().as_str()), "{next:?}");
    }
    let next = fixture.beside.origin.wait_for_request("/next", 1).await.arrived;
    assert!(next >= last + Duration::from_secs(6), "{:?} too early", last + Duration::from_secs(6) - next);
    fixture.migration.expect_outcome("was-there").await;
    fixture.assert_admitted(&two, StampedRequest::new("a", 90)).await;
}

/// The keys that were at work when the old guard was killed wait for `max_execution`, and no others do.
#[tokio::test]
async fn killed_guard_closes_active_keys_only() {
    let fixture = MigrationFixture::fresh().await;
    let alone = fixture.alone.start().await;
    fixture.assert_admitted(&alone, StampedRequest::new("rests", 20)).await;
    alone.wait_gauge("fencegate_guard_keys_at_work", 0.0).await;
    let HeldRequest { latch, request: lost, .. } =
        fixture.beside.origin.hold_request(&alone, StampedRequest::new("k", 21).once(3).post("/held")).await;
    let _dead = alone.kill().await;
    drop(lost);
    let report = fixture.migration.expect_outcome("moved").await;
    assert_eq!((&report["closed_keys"], &report["doubts"]), (&json!(1), &json!(0)), "{report}");
    let moved = std::time::Instant::now();
    let one = fixture.shared.start().await;
    one.wait_ready().await;
    fixture.assert_admitted(&one, StampedRequest::new("rests", 30)).await;
    fixture.assert_refused(&one, StampedRequest::new("k", 30), "in-doubt").await;
    // Only epochs were durable. Further dispatches of these tenures are refused, and gateways return with larger
    // epochs.
    fixture.assert_refused(&one, StampedRequest::new("rests", 20).with_dispatch(2), "stale").await;
    fixture.assert_refused(&one, StampedRequest::new("k", 21).with_dispatch(2), "stale").await;
    for epoch in 40.. {
        let next = one.send(&StampedRequest::new("k", epoch).post("/next")).await;
        if next.status == 200 {
            break;
        }
        assert!(["busy", "in-doubt"].contains(&next.reason().as_str()), "{next:?}");
    }
    let next = fixture.beside.origin.wait_for_request("/next", 1).await.arrived;
    assert!(next >= moved + MAX_EXECUTION, "{:?} too early", moved + MAX_EXECUTION - next);
    fixture.assert_refused(&one, StampedRequest::new("k", 90).once(3), "outcome-unknown").await;
    latch.release();
    assert_eq!(fixture.beside.origin.count("/late"), 0);
}

/// `--dry-run` changes nothing, and a guard that runs keeps its file.
#[tokio::test]
async fn dry_run_changes_nothing() {
    let fixture = MigrationFixture::fresh().await;
    let alone = fixture.alone.start().await;
    fixture.assert_admitted(&alone, StampedRequest::new("a", 20)).await;
    fixture.migration.expect_refusal(&["FG0546", "fuser", "guard.redb"]).await;
    alone.stop().await;
    let looked = fixture.migration.run_json(&["--dry-run"]).await;
    assert_eq!((&looked["outcome"], &looked["keys"]), (&json!("would-move"), &json!(1)), "{looked}");
    let schemas = "SELECT count(*) FROM information_schema.schemata WHERE schema_name = 'fencegate'";
    assert_eq!(fixture.database.run(schemas), "0");
    let alone = fixture.alone.start().await;
    assert!(alone.log().contains("\"clean\":true"), "{}", alone.log());
    fixture.assert_admitted(&alone, StampedRequest::new("a", 20).with_dispatch(2)).await;
    alone.stop().await;
    let file = write_policy(fixture.alone.home(), &fixture.alone.file().to_string()).display().to_string();
    let backup = fixture.alone.home().join("night.backup").display().to_string();
    let made = command(&["guard", "backup", &backup, "-c", &file, "--offline"]).await.expect("it starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let moved = fixture.migration.run(&[]).await;
    let text = String::from_utf8_lossy(&moved.stdout);
    assert!(text.contains("was moved into postgresql://") && text.contains("keys        1,"), "{text}");
    // Guards go on with the moved store. A restored backup beside them would be a second store.
    let restore = ["guard", "restore", &backup, "-c", &file, "--floor", "90", "--replace"];
    let refused = command(&restore).await.expect("it starts");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && text.contains("FG0545"), "{text}");
    fixture.assert_no_guard_opens_file().await;
}

/// A store is moved only to where there is none, only once, and the command reports what it needs.
#[tokio::test]
async fn migration_refuses_existing_store() {
    let fixture = MigrationFixture::fresh().await;
    // The database already has the store of another guard.
    let other = fixture.sharing.init_first(fixture.beside.uninitialized_launch(), 10).await;
    fixture.migration.expect_refusal(&["FG0540", "has a store of a guard already"]).await;
    fixture.alone.start().await.stop().await;
    drop(other);
    fixture.database.run("DROP SCHEMA fencegate CASCADE");
    let missing = StoreMigration::new(&fixture.alone.home().join("none.redb"), &fixture.shared);
    missing.expect_refusal(&["none.redb does not exist", "store.redb"]).await;
    // The policy has to name a database as the target. This policy names the file itself.
    let policy = StoreMigration::new(&fixture.alone.store(), &fixture.alone).run(&[]).await;
    let stderr = String::from_utf8_lossy(&policy.stderr);
    assert!(policy.status.code() == Some(2) && stderr.contains("store.redb"), "{stderr}");
    let bad = command(&["guard", "migrate", "--from", "redb", "--to", "postgres"]).await.expect("it starts");
    let stderr = String::from_utf8_lossy(&bad.stderr);
    assert!(bad.status.code() == Some(2) && stderr.contains("redb:/"), "{stderr}");
    fixture.database.run(&format!("ALTER DATABASE {} SET synchronous_commit = off", fixture.database.name));
    fixture.migration.expect_refusal(&["FG0540", "synchronous_commit"]).await;
    fixture.database.run(&format!("ALTER DATABASE {} RESET synchronous_commit", fixture.database.name));
    fixture.migration.expect_outcome("moved").await;
    // The guards may have decided more since the copy. A second copy must not undo those decisions.
    fixture.database.run("DROP SCHEMA fencegate CASCADE");
    fixture.migration.expect_refusal(&["FG0545", "already", "Nothing is copied twice"]).await;
    fixture.assert_no_guard_opens_file().await;
}

/// A guard on a copy of the old file announces the same store as not shared, so gateways can tell it from the new
/// one.
#[tokio::test]
async fn copied_file_announces_no_shared_store() {
    let fixture = MigrationFixture::fresh().await;
    let copied = fixture.alone.copy();
    fixture.alone.start().await.stop().await;
    fixture.migration.expect_outcome("moved").await;
    let one = fixture.shared.start().await;
    let other = copied.start().await;
    let announced = |guard: &Guard| {
        let address = guard.public;
        async move {
            let request = fencegate_tests::client::TestRequest::get("/.fencegate/v1/guard");
            let announcement: serde_json::Value =
                serde_json::from_slice(&request.send_to(address).await.expect("it answers").body)
                    .expect("JSON");
            announcement
        }
    };
    let new = announced(&one).await;
    let old = announced(&other).await;
    // Both announce one store, and only one announces it as shared. Gateways take this for a copied store, and send to
    // neither.
    assert_eq!(new["store"], old["store"]);
    assert!(new["shared"].is_string() && old["shared"].is_null(), "{new} {old}");
    other.signal(Signal::TERM);
}
