//! Wherever the command is killed, or an answer of the database is lost, either the old guard goes on or the new ones do,
//! and the command, repeated, finishes what it began.

use fencegate_testkit::fault_proxy::{CutPoint, FaultProxy};
use fencegate_tests::{
    guard::{StampedRequest, assert_refused},
    guarded::run_operator,
    migration::StoreMigration,
    shared_database::SharedDatabase,
};
use serde_json::Value;

use super::MigrationFixture;

impl MigrationFixture {
    /// A fixture with a key and an operation that the old guard has admitted.
    async fn with_admitted_requests() -> Self {
        let fixture = Self::fresh().await;
        let alone = fixture.alone.start().await;
        fixture.assert_admitted(&alone, StampedRequest::new("a", 20)).await;
        fixture.assert_admitted(&alone, StampedRequest::new("o", 21).once(1)).await;
        alone.stop().await;
        fixture
    }

    /// Asserts that the database has nothing that a guard would open.
    async fn assert_no_guard_opens(&self) {
        let output = self.shared.expect_start_failure().await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && stderr.contains("FG0540"), "{stderr}");
    }

    /// Asserts that the guards of the database have everything up to this epoch.
    async fn assert_continues_in_database(&self, epoch: u64) {
        self.assert_no_guard_opens_file().await;
        let one = self.shared.start().await;
        one.wait_ready().await;
        self.assert_refused(&one, StampedRequest::new("a", epoch), "duplicate").await;
        self.assert_refused(&one, StampedRequest::new("a", epoch - 1).with_dispatch(2), "stale").await;
        let again = one.send(&StampedRequest::new("o", 90).once(1).post("/pay")).await;
        assert_eq!(
            again.field("fencing-outcome").map(|outcome| outcome.starts_with("replayed")),
            Some(true),
            "{again:?}"
        );
        self.assert_admitted(&one, StampedRequest::new("a", 91)).await;
        assert_eq!(self.beside.origin.count("/late"), 0);
    }
}

/// A migration killed before the file is marked as moved leaves the old guard usable, and can be repeated.
#[tokio::test]
async fn killed_before_departure_keeps_old_guard() {
    for step in ["copying_keys", "copying_operations", "before_copy_committed", "before_file_departs"] {
        let fixture = MigrationFixture::with_admitted_requests().await;
        fixture.migration.kill_at(step).await;
        fixture.assert_no_guard_opens().await;
        let alone = fixture.alone.start().await;
        fixture.assert_admitted(&alone, StampedRequest::new("a", 30)).await;
        alone.stop().await;
        fixture.assert_no_guard_opens().await;
        // The dispatches that the guard has admitted meanwhile are copied as well.
        fixture.migration.expect_outcome("moved").await;
        fixture.assert_continues_in_database(30).await;
    }
}

/// A migration killed after the file is marked as moved is finished by the same command.
#[tokio::test]
async fn killed_after_departure_is_finished() {
    for (step, outcome) in [("before_copy_is_store", "finished"), ("after_copy_is_store", "was-there")] {
        let fixture = MigrationFixture::with_admitted_requests().await;
        fixture.migration.kill_at(step).await;
        fixture.assert_no_guard_opens_file().await;
        if outcome == "finished" {
            fixture.assert_no_guard_opens().await;
            let init = fixture.shared.clone().init(10).expect_start_failure().await;
            let stderr = String::from_utf8_lossy(&init.stderr);
            assert!(stderr.contains("FG0540") && stderr.contains("guard migrate --from redb:"), "{stderr}");
            let looked = fixture.migration.run_json(&["--dry-run"]).await;
            assert_eq!(looked["outcome"], "would-finish", "{looked}");
            fixture.assert_no_guard_opens().await;
            // The command as it was printed, except for the format of the answer.
            let printed = stderr.split("`fencegate ").find(|text| text.starts_with("guard migrate"));
            let printed = printed.and_then(|text| text.split('`').next()).expect("a command");
            let words: Vec<&str> = printed.split(' ').chain(["--format", "json"]).collect();
            let done: Value = serde_json::from_str(&run_operator(&words).await).expect("JSON");
            assert_eq!(done["outcome"], outcome, "{done}");
        } else {
            fixture.migration.expect_outcome(outcome).await;
        }
        fixture.migration.expect_outcome("was-there").await;
        fixture.assert_continues_in_database(20).await;
    }
}

/// A copy that another server has taken over closes every key, as after any failover: a standby that took over may have
/// the copy, and lack everything that guards have done with the store since.
#[tokio::test]
async fn failover_after_copy_closes_all_keys() {
    let fixture = MigrationFixture::with_admitted_requests().await;
    fixture.migration.kill_at("before_copy_is_store").await;
    assert_eq!(
        fixture
            .database
            .run("UPDATE fencegate.moved_in SET origin = 'another/00000001' RETURNING origin <> ''"),
        "t"
    );
    fixture.migration.expect_outcome("finished").await;
    let one = fixture.shared.start().await;
    assert_refused(&one.send(&StampedRequest::new("a", 30).post("/late")).await, "quarantine");
    assert_eq!(one.metrics().await.sum("fencegate_guard_store_rolled_back", &[]), 1.0);
    one.wait_ready().await;
    fixture.assert_admitted(&one, StampedRequest::new("a", 31)).await;
    assert_eq!(fixture.beside.origin.count("/late"), 0);
}

/// A message lost between the command and the database leaves nothing half done: the next run ends the migration.
#[tokio::test]
async fn lost_message_leaves_nothing_half_done() {
    for (words, lost, outcome) in [
        ("COMMIT", CutPoint::Question, "moved"),
        ("COMMIT", CutPoint::Answer, "moved"),
        ("moved_in WHERE id", CutPoint::Question, "finished"),
    ] {
        let fixture = MigrationFixture::with_admitted_requests().await;
        let proxy = FaultProxy::start(fixture.database.address);
        let proxied = SharedDatabase::new(&fixture.database.url_at(&[proxy.address]));
        let through = StoreMigration::new(&fixture.alone.store(), &proxied.guard(fixture.shared.clone()));
        proxy.cut_next(words, lost);
        let (output, ()) = tokio::join!(through.run(&[]), proxy.wait_cut());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && stderr.contains("FG0540"), "{words} {lost:?}: {stderr}");
        fixture.migration.expect_outcome(outcome).await;
        fixture.assert_continues_in_database(20).await;
    }
}

/// A database with the copy of one store refuses another store, whose guard goes on with its file.
#[tokio::test]
async fn second_store_in_database_is_refused() {
    let fixture = MigrationFixture::with_admitted_requests().await;
    let other = MigrationFixture::with_admitted_requests().await;
    let theirs = StoreMigration::new(&other.alone.store(), &fixture.shared);
    fixture.migration.kill_at("before_file_departs").await;
    theirs.expect_refusal(&["FG0540", "has an unfinished copy of the store in", "guard.redb"]).await;
    let alone = other.alone.start().await;
    other.assert_admitted(&alone, StampedRequest::new("a", 30)).await;
    alone.stop().await;
    fixture.migration.expect_outcome("moved").await;
    theirs.expect_refusal(&["FG0540", "already"]).await;
}
