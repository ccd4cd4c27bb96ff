//! The command is killed wherever it stands, or an answer of the database is lost: either the old guard goes on, or the new
//! ones do, and the command ends what it began.

use fencegate_tests::{
    guard::{StampedRequest, assert_refused},
    guarded::run_operator,
    migration::StoreMigration,
    postgres::{LostMessage, PostgresProxy},
    shared_database::SharedDatabase,
};
use serde_json::Value;

use super::MigrationFixture;

impl MigrationFixture {
    /// With a key that the old guard has let in.
    async fn used() -> Self {
        let it = Self::fresh().await;
        let alone = it.alone.start().await;
        it.passes(&alone, StampedRequest::new("a", 20)).await;
        it.passes(&alone, StampedRequest::new("o", 21).once(1)).await;
        alone.stop().await;
        it
    }

    /// The database has nothing that a guard would open.
    async fn no_guard_joins(&self) {
        let output = self.shared.expect_start_failure().await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("FG0540"), "{said}");
    }

    /// Up to this epoch everything is known.
    async fn goes_on_in_the_database(&self, epoch: u64) {
        self.no_guard_opens_the_file().await;
        let one = self.shared.start().await;
        one.wait_ready().await;
        self.refuses(&one, StampedRequest::new("a", epoch), "duplicate").await;
        self.refuses(&one, StampedRequest::new("a", epoch - 1).with_dispatch(2), "stale").await;
        let again = one.send(&StampedRequest::new("o", 90).once(1).post("/pay")).await;
        assert_eq!(
            again.field("fencing-outcome").map(|told| told.starts_with("replayed")),
            Some(true),
            "{again:?}"
        );
        self.passes(&one, StampedRequest::new("a", 91)).await;
        assert_eq!(self.beside.origin.count("/late"), 0);
    }
}

#[tokio::test]
async fn killed_before_the_file_says_that_it_has_gone_the_old_guard_may_go_on() {
    for step in ["copying_keys", "copying_operations", "before_copy_committed", "before_file_departs"] {
        let it = MigrationFixture::used().await;
        it.migration.kill_at(step).await;
        it.no_guard_joins().await;
        let alone = it.alone.start().await;
        it.passes(&alone, StampedRequest::new("a", 30)).await;
        alone.stop().await;
        it.no_guard_joins().await;
        // The dispatches that the guard has let in meanwhile are copied as well.
        it.migration.expect_outcome("moved").await;
        it.goes_on_in_the_database(30).await;
    }
}

#[tokio::test]
async fn killed_behind_it_the_command_ends_what_it_began() {
    for (step, outcome) in [("before_copy_is_store", "finished"), ("after_copy_is_store", "was-there")] {
        let it = MigrationFixture::used().await;
        it.migration.kill_at(step).await;
        it.no_guard_opens_the_file().await;
        if outcome == "finished" {
            it.no_guard_joins().await;
            let init = it.shared.clone().init(10).expect_start_failure().await;
            let said = String::from_utf8_lossy(&init.stderr);
            assert!(said.contains("FG0540") && said.contains("guard migrate --from redb:"), "{said}");
            let looked = it.migration.run_json(&["--dry-run"]).await;
            assert_eq!(looked["outcome"], "would-finish", "{looked}");
            it.no_guard_joins().await;
            // As it was printed, but for the form of the answer.
            let printed = said.split("`fencegate ").find(|text| text.starts_with("guard migrate"));
            let printed = printed.and_then(|text| text.split('`').next()).expect("a command");
            let words: Vec<&str> = printed.split(' ').chain(["--format", "json"]).collect();
            let done: Value = serde_json::from_str(&run_operator(&words).await).expect("JSON");
            assert_eq!(done["outcome"], outcome, "{done}");
        } else {
            it.migration.expect_outcome(outcome).await;
        }
        it.migration.expect_outcome("was-there").await;
        it.goes_on_in_the_database(20).await;
    }
}

/// A standby that took over may have the copy, and lack everything that guards have done with the store since.
#[tokio::test]
async fn a_copy_that_another_server_has_taken_over_closes_every_key_as_after_any_failover() {
    let it = MigrationFixture::used().await;
    it.migration.kill_at("before_copy_is_store").await;
    assert_eq!(
        it.database.run("UPDATE fencegate.moved_in SET origin = 'another/00000001' RETURNING origin <> ''"),
        "t"
    );
    it.migration.expect_outcome("finished").await;
    let one = it.shared.start().await;
    assert_refused(&one.send(&StampedRequest::new("a", 30).post("/late")).await, "quarantine");
    assert_eq!(one.metrics().await.sum("fencegate_guard_store_rolled_back", &[]), 1.0);
    one.wait_ready().await;
    it.passes(&one, StampedRequest::new("a", 31)).await;
    assert_eq!(it.beside.origin.count("/late"), 0);
}

#[tokio::test]
async fn what_is_lost_on_the_way_to_the_database_leaves_nothing_half_done() {
    for (words, lost, outcome) in [
        ("COMMIT", LostMessage::Question, "moved"),
        ("COMMIT", LostMessage::Answer, "moved"),
        ("moved_in WHERE id", LostMessage::Question, "finished"),
    ] {
        let it = MigrationFixture::used().await;
        let cut = PostgresProxy::start(it.database.address).await;
        let way = SharedDatabase::new(&it.database.url_at(&[cut.address]));
        let through = StoreMigration::new(&it.alone.store(), &way.guard(it.shared.clone()));
        cut.cut_next(words, lost);
        let (output, ()) = tokio::join!(through.run(&[]), cut.wait_done());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("FG0540"), "{words} {lost:?}: {said}");
        it.migration.expect_outcome(outcome).await;
        it.goes_on_in_the_database(20).await;
    }
}

#[tokio::test]
async fn two_stores_do_not_meet_in_one_database() {
    let (it, other) = (MigrationFixture::used().await, MigrationFixture::used().await);
    let theirs = StoreMigration::new(&other.alone.store(), &it.shared);
    it.migration.kill_at("before_file_departs").await;
    theirs.expect_refusal(&["FG0540", "has a copy of the store in", "guard.redb"]).await;
    let alone = other.alone.start().await;
    other.passes(&alone, StampedRequest::new("a", 30)).await;
    alone.stop().await;
    it.migration.expect_outcome("moved").await;
    theirs.expect_refusal(&["FG0540", "already"]).await;
}
