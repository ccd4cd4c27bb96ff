//! The store of a guard is moved from its file into a database: what the old guard refused the new ones refuse, what was
//! done once is not done again, what was in doubt stays closed, and no guard opens the file any more.

mod decisions;
mod killed;
mod load;

use std::time::Duration;

use fencegate::demo::child::Signal;
use fencegate_tests::{
    client::FencingOutcome,
    gateway::{command, write_policy},
    guard::{Guard, GuardFixture, GuardLaunch, StampedRequest, assert_refused},
    held_request::HeldRequest,
    migration::StoreMigration,
    origin::{Act, OriginReply},
    postgres::{self, TestDatabase},
    shared_database::{MAX_EXECUTION, SharedDatabase},
};
use serde_json::json;

async fn database() -> TestDatabase {
    tokio::task::spawn_blocking(postgres::fresh_database).await.expect("no panic")
}

/// A guard with a store in a file, and the one that is to go on with it in a database.
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
        let beside = GuardFixture::new().await;
        let database = database().await;
        let sharing = SharedDatabase::new(&database.url());
        // The times of both are the same.
        let alone = beside.launch().await;
        let file = alone.store().display().to_string();
        let alone = sharing.guard(alone).with("/store", json!({ "redb": file }));
        let shared = sharing.guard(alone.clone());
        let migration = StoreMigration::new(&alone.store(), &shared);
        Self { beside, sharing, database, alone, shared, migration }
    }

    /// Sends the dispatch, and asserts that it is let in.
    async fn passes(&self, guard: &Guard, dispatch: StampedRequest) {
        let answer = guard.send(&dispatch.post("/pay")).await;
        assert_eq!(
            (answer.status, answer.outcome()),
            (200, Some(FencingOutcome::Done)),
            "{dispatch:?}: {answer:?}"
        );
    }

    async fn refuses(&self, guard: &Guard, dispatch: StampedRequest, reason: &str) {
        assert_refused(&guard.send(&dispatch.post("/late")).await, reason);
    }

    async fn no_guard_opens_the_file(&self) {
        let output = self.alone.expect_start_failure().await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("FG0545") && said.contains("store.postgres"), "{said}");
    }
}

#[tokio::test]
async fn what_the_old_guard_knew_the_new_ones_know() {
    let it = MigrationFixture::fresh().await;
    let patient = it.alone.clone().with("/max_execution", "6s");
    let alone = patient.start().await;
    for dispatch in [
        StampedRequest::new("a", 30),
        StampedRequest::new("a", 30).with_dispatch(2),
        StampedRequest::new("r", 35),
        StampedRequest::new("r", 40).shared(),
        StampedRequest::new("s", 41).shared(),
    ] {
        it.passes(&alone, dispatch).await;
    }
    let receipt =
        OriginReply::with_body(b"{\"id\": 7}\0\xff".as_slice()).status(201).field("Location", "/pay/7");
    it.beside.origin.script("/once", [Act::now(receipt)]);
    let first = alone.send(&StampedRequest::new("o", 50).once(1).post("/once")).await;
    assert_eq!(first.status, 201);
    it.beside.origin.script("/broken", [Act::Reset]);
    assert_eq!(alone.send(&StampedRequest::new("u", 60).once(2).post("/broken")).await.status, 502);
    let last = it.beside.origin.request("/broken", 1).await.whole.expect("read");
    let _left = alone.stop().await;

    let told = it.migration.expect_outcome("moved").await;
    assert_eq!((&told["keys"], &told["operations"]), (&json!(5), &json!(2)), "{told}");
    assert_eq!((&told["operations_unknown"], &told["doubts"]), (&json!(1), &json!(1)), "{told}");
    assert_eq!((&told["highest"], &told["closed_keys"]), (&json!(60), &json!(0)), "{told}");
    let one = it.shared.start().await;
    one.wait_ready().await;
    it.no_guard_opens_the_file().await;
    let two = it.sharing.guard(it.alone.clone()).start().await;
    two.wait_ready().await;
    for (guard, epoch) in [(&one, 72), (&two, 73)] {
        it.refuses(guard, StampedRequest::new("a", 29), "stale").await;
        it.refuses(guard, StampedRequest::new("a", 30).with_dispatch(2), "duplicate").await;
        it.refuses(guard, StampedRequest::new("r", 34).shared(), "stale").await;
        it.refuses(guard, StampedRequest::new("r", 40), "stale").await;
        it.refuses(guard, StampedRequest::new("s", 41), "stale").await;
        it.refuses(guard, StampedRequest::new("new", 10), "floor").await;
        let again = guard.send(&StampedRequest::new("o", 70).once(1).post("/once")).await;
        assert_eq!((again.status, again.outcome()), (201, Some(FencingOutcome::Replayed)), "{again:?}");
        assert_eq!((&again.body, again.field("location")), (&first.body, Some("/pay/7")));
        it.refuses(guard, StampedRequest::new("u", 71).once(2), "outcome-unknown").await;
        it.refuses(guard, StampedRequest::new("u", epoch), "in-doubt").await;
    }
    it.passes(&one, StampedRequest::new("a", 30).with_dispatch(3)).await;
    it.passes(&two, StampedRequest::new("r", 39).shared()).await;
    assert_eq!((it.beside.origin.count("/once"), it.beside.origin.count("/late")), (1, 0));
    for epoch in 80.. {
        let next = one.send(&StampedRequest::new("u", epoch).post("/next")).await;
        if next.status == 200 {
            break;
        }
        assert!(["busy", "in-doubt"].contains(&next.reason().as_str()), "{next:?}");
    }
    let next = it.beside.origin.request("/next", 1).await.arrived;
    assert!(next >= last + Duration::from_secs(6), "{:?} too early", last + Duration::from_secs(6) - next);
    it.migration.expect_outcome("was-there").await;
    it.passes(&two, StampedRequest::new("a", 90)).await;
}

#[tokio::test]
async fn keys_that_were_at_work_when_the_old_guard_was_killed_wait_and_no_others_do() {
    let it = MigrationFixture::fresh().await;
    let alone = it.alone.start().await;
    it.passes(&alone, StampedRequest::new("rests", 20)).await;
    alone.wait_gauge("fencegate_guard_keys_at_work", 0.0).await;
    let HeldRequest { latch, request: lost, .. } =
        it.beside.origin.hold_request(&alone, StampedRequest::new("k", 21).once(3).post("/held")).await;
    let _dead = alone.kill().await;
    drop(lost);
    let told = it.migration.expect_outcome("moved").await;
    assert_eq!((&told["closed_keys"], &told["doubts"]), (&json!(1), &json!(0)), "{told}");
    let moved = std::time::Instant::now();
    let one = it.shared.start().await;
    one.wait_ready().await;
    it.passes(&one, StampedRequest::new("rests", 30)).await;
    it.refuses(&one, StampedRequest::new("k", 30), "in-doubt").await;
    // Only epochs were durable, so the tenure that ran comes back with a larger epoch.
    it.refuses(&one, StampedRequest::new("rests", 20).with_dispatch(2), "stale").await;
    it.refuses(&one, StampedRequest::new("k", 21).with_dispatch(2), "stale").await;
    for epoch in 40.. {
        let next = one.send(&StampedRequest::new("k", epoch).post("/next")).await;
        if next.status == 200 {
            break;
        }
        assert!(["busy", "in-doubt"].contains(&next.reason().as_str()), "{next:?}");
    }
    let next = it.beside.origin.request("/next", 1).await.arrived;
    assert!(next >= moved + MAX_EXECUTION, "{:?} too early", moved + MAX_EXECUTION - next);
    it.refuses(&one, StampedRequest::new("k", 90).once(3), "outcome-unknown").await;
    latch.release();
    assert_eq!(it.beside.origin.count("/late"), 0);
}

#[tokio::test]
async fn a_look_beforehand_changes_nothing_and_a_guard_that_runs_keeps_its_file() {
    let it = MigrationFixture::fresh().await;
    let alone = it.alone.start().await;
    it.passes(&alone, StampedRequest::new("a", 20)).await;
    it.migration.expect_refusal(&["FG0546", "fuser", "guard.redb"]).await;
    alone.stop().await;
    let looked = it.migration.run_json(&["--dry-run"]).await;
    assert_eq!((&looked["outcome"], &looked["keys"]), (&json!("would-move"), &json!(1)), "{looked}");
    let schemas = "SELECT count(*) FROM information_schema.schemata WHERE schema_name = 'fencegate'";
    assert_eq!(it.database.run(schemas), "0");
    let alone = it.alone.start().await;
    assert!(alone.log().contains("\"clean\":true"), "{}", alone.log());
    it.passes(&alone, StampedRequest::new("a", 20).with_dispatch(2)).await;
    alone.stop().await;
    let file = write_policy(it.alone.home(), &it.alone.file().to_string()).display().to_string();
    let backup = it.alone.home().join("night.backup").display().to_string();
    let made = command(&["guard", "backup", &backup, "-c", &file, "--offline"]).await.expect("it starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let moved = it.migration.run(&[]).await;
    let said = String::from_utf8_lossy(&moved.stdout);
    assert!(said.contains("was moved into postgresql://") && said.contains("keys        1,"), "{said}");
    // Guards go on with the moved store. A restored backup beside them would be a second store.
    let restore = ["guard", "restore", &backup, "-c", &file, "--floor", "90", "--replace"];
    let refused = command(&restore).await.expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("FG0545"), "{said}");
    it.no_guard_opens_the_file().await;
}

#[tokio::test]
async fn a_store_goes_only_where_there_is_none_and_the_command_says_what_it_needs() {
    let it = MigrationFixture::fresh().await;
    // Another store is there.
    let other = it.sharing.first(it.beside.uninitialized_launch(), 10).await;
    it.migration.expect_refusal(&["FG0540", "has a store of a guard already"]).await;
    it.alone.start().await.stop().await;
    drop(other);
    it.database.run("DROP SCHEMA fencegate CASCADE");
    let missing = StoreMigration::new(&it.alone.home().join("none.redb"), &it.shared);
    missing.expect_refusal(&["none.redb does not exist", "store.redb"]).await;
    // The target of the migration is the store that the policy names.
    let policy = StoreMigration::new(&it.alone.store(), &it.alone).run(&[]).await;
    let said = String::from_utf8_lossy(&policy.stderr);
    assert!(policy.status.code() == Some(2) && said.contains("store.redb"), "{said}");
    let bad = command(&["guard", "migrate", "--from", "redb", "--to", "postgres"]).await.expect("it starts");
    let said = String::from_utf8_lossy(&bad.stderr);
    assert!(bad.status.code() == Some(2) && said.contains("redb:/"), "{said}");
    it.database.run(&format!("ALTER DATABASE {} SET synchronous_commit = off", it.database.name));
    it.migration.expect_refusal(&["FG0540", "synchronous_commit"]).await;
    it.database.run(&format!("ALTER DATABASE {} RESET synchronous_commit", it.database.name));
    it.migration.expect_outcome("moved").await;
    // The guards may have decided more since the copy. A second copy must not undo those decisions.
    it.database.run("DROP SCHEMA fencegate CASCADE");
    it.migration.expect_refusal(&["FG0545", "already", "Nothing is copied twice"]).await;
    it.no_guard_opens_the_file().await;
}

#[tokio::test]
async fn a_copy_of_the_old_file_is_no_second_guard_beside_the_new_one() {
    let it = MigrationFixture::fresh().await;
    let copied = it.alone.copy();
    it.alone.start().await.stop().await;
    it.migration.expect_outcome("moved").await;
    let one = it.shared.start().await;
    let other = copied.start().await;
    let said = |guard: &Guard| {
        let address = guard.public;
        async move {
            let ask = fencegate_tests::client::TestRequest::get("/.fencegate/v1/guard");
            let told: serde_json::Value =
                serde_json::from_slice(&ask.send_to(address).await.expect("it answers").body).expect("JSON");
            told
        }
    };
    let (new, old) = (said(&one).await, said(&other).await);
    // Both name one store, and only one says that its store is shared. Gateways take this for a copied store, and
    // send to neither.
    assert_eq!(new["store"], old["store"]);
    assert!(new["shared"].is_string() && old["shared"].is_null(), "{new} {old}");
    other.signal(Signal::TERM);
}
