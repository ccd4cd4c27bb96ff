//! What an earlier version has stored is understood. `tests/versions/stored` has the store of a guard, the folder of a
//! gateway and the nodes in ZooKeeper, as that version wrote them.
//!
//! `VERSIONS.md` has the number of every stored format.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use fencegate_testkit::scratch;
use fencegate_tests::{
    client::TestRequest,
    gateway::GatewayLaunch,
    guard::GuardFixture,
    guarded::with_short_times,
    process::binary,
    site::TestSite,
    stored::{assert_gateway_state, assert_guard_store, policy_with_operations},
};
use serde_json::Value;

fn stored(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("versions/stored").join(name)
}

fn nodes() -> Vec<Value> {
    serde_json::from_slice(&fs::read(stored("nodes.json")).expect("committed")).expect("a list")
}

#[tokio::test]
async fn guard_reads_earlier_store() {
    let beside = GuardFixture::new().await;
    let launch = with_short_times(beside.uninitialized_launch());
    let unpacked = Command::new("gzip").arg("-dc").arg(stored("guard.redb.gz")).output().expect("gzip");
    assert!(unpacked.status.success(), "{unpacked:?}");
    fs::write(launch.store(), unpacked.stdout).expect("our own folder");
    assert_guard_store(&launch.start().await, &beside.origin).await;
}

#[tokio::test]
async fn gateways_read_earlier_zookeeper_nodes() {
    let site = TestSite::fresh().await;
    site.tree().await.restore(&nodes()).await;
    assert_gateway_state(&site, &binary()).await;
}

/// A gateway reads the largest token from the record of an earlier version.
///
/// The tokens of a new ZooKeeper are smaller, so the gateway reports a rollback and grants nothing.
#[tokio::test]
async fn gateway_reads_earlier_state_record() {
    let (_zookeeper, site) = TestSite::with_own_zookeeper().await;
    site.tree().await.restore(&nodes()).await;
    let state = scratch::temp_dir();
    let record =
        fs::read_dir(stored("state_dir")).expect("committed").next().expect("a record").expect("readable");
    fs::copy(record.path(), state.path().join(record.file_name())).expect("our own folder");
    let policy = policy_with_operations(&site, "gw-1").with("/state_dir", state.path().display().to_string());
    let gateway = GatewayLaunch::new(&policy).without_init().start().await;
    let seen: Value = serde_json::from_slice(&fs::read(record.path()).expect("committed")).expect("JSON");
    let read = gateway.wait_line("what it found", |line| line.message() == "state.read").await;
    let read: Value = serde_json::from_str(&read.text()).expect("JSON");
    assert_eq!(read["fields"]["highest"], seen["highest"], "{read}");
    // Each of the four sessions notices the rollback.
    gateway.wait_series("fencegate_zk_rolled_back", &[], 4.0).await;
    let answer = gateway.send(&TestRequest::post("/pay/7").field("Idempotency-Key", "new").body("{}")).await;
    assert_eq!((answer.status, answer.reason()), (503, "rolled-back".into()));
}

/// The file with the format number of each stored form, by the name that VERSIONS.md uses.
const FORMS: [(&str, &str); 9] = [
    ("`meta` in ZooKeeper", "gateway/zookeeper/src/installation.rs"),
    ("`ops/...` in ZooKeeper", "gateway/idempotency/src/record.rs"),
    ("`locks/<2 hex>/<key>` in ZooKeeper", "gateway/recipe/src/grant_record.rs"),
    ("`plans/...` in ZooKeeper", "policies/src/plan_digest.rs"),
    ("`seen-....json` in `state_dir`", "gateway/zookeeper/src/state/record.rs"),
    ("the file of `store.redb`", "gateway/guard-store/src/store/recovery.rs"),
    ("the database of `store.postgres`", "gateway/guard-postgres/src/postgres/migrate.rs"),
    ("`Fencing-Ticket`", "gateway/ticket/src/claims.rs"),
    ("its announcement", "gateway/guard/src/identity.rs"),
];

/// Collects all source files with a format number, and the number.
fn collect_formats(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path()) {
        if entry.is_dir() {
            collect_formats(&entry, found);
        } else if entry.extension().is_some_and(|kind| kind == "rs") {
            let text = fs::read_to_string(&entry).expect("text");
            // A database is migrated in steps, so the number of steps is its format number. Other files have a
            // constant.
            let number = text.lines().find_map(|line| {
                let line = line.trim_start_matches("pub ").trim_start_matches("pub(super) ");
                let steps =
                    line.strip_prefix("const STEPS: [&[&str]; ").and_then(|rest| rest.split(']').next());
                steps.or_else(|| line.strip_prefix("const FORMAT: u32 = ")?.strip_suffix(';'))
            });
            if let Some(number) = number {
                found.insert(entry, number.to_owned());
            }
        }
    }
}

/// VERSIONS.md has the number of every stored format.
#[test]
fn versions_document_lists_every_format() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let document = fs::read_to_string(root.join("deploy/docs/VERSIONS.md")).expect("shipped");
    let mut found = BTreeMap::new();
    for folder in ["gateway", "policies/src"] {
        collect_formats(&root.join(folder), &mut found);
    }
    for (place, source) in FORMS {
        let number = found.remove(&root.join(source)).unwrap_or_else(|| panic!("no form in {source}"));
        let told = document.lines().find(|line| line.contains(&format!("| {place} | {number}")));
        assert!(told.is_some(), "{place} has form {number}");
    }
    assert!(found.is_empty(), "VERSIONS.md says nothing of {found:?}");
}
