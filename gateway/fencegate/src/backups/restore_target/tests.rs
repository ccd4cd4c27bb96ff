//! Tests what a restore does with an old store in its place.

use std::{
    os::unix::fs::PermissionsExt as _,
    thread,
    time::{Duration, Instant},
};

use fencegate_guard_store::store::{FORMAT, GuardStore as _, StoreIdentity, StoreMutation};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A folder with a backup of a store that had admitted nothing.
struct StoreFixture(tempfile::TempDir);

impl StoreFixture {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().expect("a folder"));
        let store = site.create_store("other.redb", 5);
        let mut bytes = Vec::new();
        store.write_backup(&mut bytes).expect("memory takes every byte");
        fs::write(site.path("backup"), bytes).expect("a folder of our own");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn target_path(&self) -> PathBuf {
        self.path("guard.redb")
    }

    fn create_store(&self, name: &str, floor: u64) -> RedbStore {
        self.create_store_of_format(name, floor, FORMAT)
    }

    fn create_store_of_format(&self, name: &str, floor: u64, format: u32) -> RedbStore {
        let identity = StoreIdentity { format, store: "s-1".into(), ensemble: "e-1".into() };
        RedbStore::init(&self.path(name), &identity, floor).expect("a new store")
    }

    fn open_target(&self) -> Result<RestoreTarget, RestoreBackupError> {
        RestoreTarget::open(&self.target_path(), OverwritePolicy::Replace)
    }

    /// Opens the target, once no process has it open. A process that another test forks holds the locks of this
    /// process until it executes its program.
    fn wait_free_target(&self) -> RestoreTarget {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match self.open_target() {
                Err(RestoreBackupError::InUse { .. }) if Instant::now() < deadline => thread::yield_now(),
                opened => return opened.expect("at rest"),
            }
        }
    }

    fn restore(&self, place: RestoreTarget, floor: u64) -> Result<RestoredStore, RestoreBackupError> {
        place.restore(&self.path("backup"), &restore_settings(floor))
    }
}

fn restore_settings(floor: u64) -> RestoreOptions {
    RestoreOptions { store: "s-2".into(), floor, send_within: SECOND, max_execution: SECOND * 2 }
}

/// A restored store keeps the guard closed as long as a start on the old store would, and its file has mode 0600.
#[test]
fn restore_honors_old_max_execution() {
    let site = StoreFixture::new();
    let old = site.create_store("guard.redb", 5);
    old.commit(&[StoreMutation::MaxExecution(SECOND * 60)]).expect("written");
    drop(old);
    let made = site.restore(site.wait_free_target(), 20).expect("made");
    assert_eq!(made.closed_for, SECOND * 61);
    let remembered =
        RedbStore::open(&site.target_path()).expect("a store").recover(SECOND).expect("readable");
    assert_eq!(remembered.max_execution, Some(SECOND * 61));
    let mode = site.target_path().metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// A restore is refused while a guard has the store open.
#[test]
fn store_in_use_is_refused() {
    let site = StoreFixture::new();
    let guard = site.create_store("guard.redb", 5);
    assert!(matches!(site.open_target().err(), Some(RestoreBackupError::InUse { .. })));
    drop(guard);
    site.wait_free_target();
}

/// A store that appears in the target after the restore has opened it is left there, and the restore is refused.
#[test]
fn store_changed_meanwhile_is_kept() {
    let site = StoreFixture::new();
    drop(site.create_store("guard.redb", 5));
    let place = site.wait_free_target();
    fs::rename(site.target_path(), site.path("elsewhere")).expect("a folder of our own");
    drop(site.create_store("guard.redb", 90));
    let refused = site.restore(place, 20).expect_err("it has not been looked at");
    assert!(matches!(refused, RestoreBackupError::Changed { .. }), "{refused}");
    assert_eq!(
        RedbStore::open(&site.target_path()).and_then(|store| store.backup_header()).expect("a store").floor,
        90
    );
    assert_eq!(newest_replaced_number(&site.target_path()).expect("readable"), None);

    fs::write(site.path("aside"), "old").expect("a folder of our own");
    move_back(&site.path("aside"), &site.target_path()).expect_err("another one is there");
    assert_eq!(fs::read(site.path("aside")).expect("still there"), b"old");
    fs::remove_file(site.target_path()).expect("a folder of our own");
    move_back(&site.path("aside"), &site.target_path()).expect("nothing is there");
}

/// An open file that was renamed is not taken for the file that lies at its former path now.
#[test]
fn renamed_target_file_is_detected() {
    let site = StoreFixture::new();
    drop(site.create_store("guard.redb", 5));
    let file = File::open(site.target_path()).expect("there");
    check_same_file(&file, &site.target_path()).expect("the same");
    fs::rename(site.target_path(), site.path("elsewhere")).expect("a folder of our own");
    check_same_file(&file, &site.target_path()).expect_err("nothing is there");
    fs::write(site.target_path(), "another").expect("a folder of our own");
    assert!(matches!(check_same_file(&file, &site.target_path()), Err(RestoreBackupError::Changed { .. })));
}

/// A store of a newer format is refused, while a damaged store may be replaced.
#[test]
fn newer_store_is_refused_damaged_replaced() {
    let site = StoreFixture::new();
    drop(site.create_store_of_format("guard.redb", 5, FORMAT + 1));
    let refused = site.open_target().err().expect("nobody here knows what it has let in");
    assert!(matches!(refused, RestoreBackupError::Newer(_)), "{refused}");
    fs::write(site.target_path(), "no store at all").expect("a folder of our own");
    site.restore(site.open_target().expect("damaged for good"), 20).expect("made");
}

/// A restore is refused if its floor is below the newest token of a backup file that lies in the place of the store.
#[test]
fn backup_in_target_bounds_floor() {
    let site = StoreFixture::new();
    let store = site.create_store("newer.redb", 50);
    store.write_backup(&mut File::create(site.target_path()).expect("a folder of our own")).expect("written");
    let refused = site.restore(site.wait_free_target(), 49).expect_err("below");
    assert!(matches!(refused, RestoreBackupError::Floor { floor: 49, highest: 50, .. }), "{refused}");
}

/// After a crash between the two renames of an earlier restore, the store that it has moved aside still bounds the
/// floor.
#[test]
fn replaced_store_bounds_floor_after_crash() {
    let site = StoreFixture::new();
    drop(site.create_store("guard.redb.replaced-2", 30));
    drop(site.create_store("guard.redb.replaced-10", 50));
    drop(site.create_store("guard.redb.replaced-010", 99));
    drop(site.create_store("other.redb.replaced-11", 99));
    let refused = site.restore(site.wait_free_target(), 49).expect_err("it would let 50 in again");
    assert!(matches!(refused, RestoreBackupError::Floor { floor: 49, highest: 50, .. }), "{refused}");
    let made = site.restore(site.wait_free_target(), 50).expect("made");
    assert_eq!(made.aside, None);
    let made = site.restore(site.wait_free_target(), 60).expect("made");
    assert_eq!(made.aside, Some(site.path("guard.redb.replaced-11")), "the newest has the largest number");
}
