//! What happens to an old store when a new one is made in its place.

use std::{
    os::unix::fs::PermissionsExt as _,
    thread,
    time::{Duration, Instant},
};

use fencegate_guard::store::{Change, FORMAT, Store as _, StoreIdentity};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A folder with a backup of a store that had let nothing in.
struct StoreFixture(tempfile::TempDir);

impl StoreFixture {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().expect("a folder"));
        let store = site.store("other.redb", 5);
        let mut bytes = Vec::new();
        store.copy(&mut bytes).expect("memory takes every byte");
        fs::write(site.path("backup"), bytes).expect("a folder of our own");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn target_path(&self) -> PathBuf {
        self.path("guard.redb")
    }

    fn store(&self, name: &str, floor: u64) -> RedbStore {
        self.store_of_format(name, floor, FORMAT)
    }

    fn store_of_format(&self, name: &str, floor: u64, format: u32) -> RedbStore {
        let identity = StoreIdentity { format, store: "s-1".into(), ensemble: "e-1".into() };
        RedbStore::init(&self.path(name), &identity, floor).expect("a new store")
    }

    fn open_target(&self) -> Result<RestoreTarget, RestoreError> {
        RestoreTarget::open(&self.target_path(), OverwritePolicy::Replace)
    }

    /// The target that nobody has open. A process that another test has forked holds our locks until it executes its program.
    fn free_target(&self) -> RestoreTarget {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match self.open_target() {
                Err(RestoreError::InUse { .. }) if Instant::now() < deadline => thread::yield_now(),
                opened => return opened.expect("at rest"),
            }
        }
    }

    fn restore(&self, place: RestoreTarget, floor: u64) -> Result<RestoredStore, RestoreError> {
        place.restore(&self.path("backup"), &restore_settings(floor))
    }
}

fn restore_settings(floor: u64) -> RestoreOptions {
    RestoreOptions { store: "s-2".into(), floor, send_within: SECOND, max_execution: SECOND * 2 }
}

#[test]
fn a_restore_closes_for_as_long_as_a_guard_that_starts_on_the_old_store() {
    let site = StoreFixture::new();
    let old = site.store("guard.redb", 5);
    old.commit(&[Change::MaxExecution(SECOND * 60)]).expect("written");
    drop(old);
    let made = site.restore(site.free_target(), 20).expect("made");
    assert_eq!(made.closed_for, SECOND * 61);
    let remembered = RedbStore::open(&site.target_path()).expect("a store").load(SECOND).expect("readable");
    assert_eq!(remembered.max_execution, Some(SECOND * 61));
    let mode = site.target_path().metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_store_that_a_guard_has_open_is_not_taken() {
    let site = StoreFixture::new();
    let guard = site.store("guard.redb", 5);
    assert!(matches!(site.open_target().err(), Some(RestoreError::InUse { .. })));
    drop(guard);
    site.free_target();
}

#[test]
fn what_has_come_to_the_place_meanwhile_is_left_there() {
    let site = StoreFixture::new();
    drop(site.store("guard.redb", 5));
    let place = site.free_target();
    fs::rename(site.target_path(), site.path("elsewhere")).expect("a folder of our own");
    drop(site.store("guard.redb", 90));
    let refused = site.restore(place, 20).expect_err("it has not been looked at");
    assert!(matches!(refused, RestoreError::Changed { .. }), "{refused}");
    assert_eq!(
        RedbStore::open(&site.target_path()).and_then(|store| store.header()).expect("a store").floor,
        90
    );
    assert_eq!(newest_replaced_number(&site.target_path()).expect("readable"), None);

    fs::write(site.path("aside"), "old").expect("a folder of our own");
    move_back(&site.path("aside"), &site.target_path()).expect_err("another one is there");
    assert_eq!(fs::read(site.path("aside")).expect("still there"), b"old");
    fs::remove_file(site.target_path()).expect("a folder of our own");
    move_back(&site.path("aside"), &site.target_path()).expect("nothing is there");
}

#[test]
fn a_file_that_is_held_under_another_name_is_not_the_one_that_is_there() {
    let site = StoreFixture::new();
    drop(site.store("guard.redb", 5));
    let file = File::open(site.target_path()).expect("there");
    check_same_file(&file, &site.target_path()).expect("the same");
    fs::rename(site.target_path(), site.path("elsewhere")).expect("a folder of our own");
    check_same_file(&file, &site.target_path()).expect_err("nothing is there");
    fs::write(site.target_path(), "another").expect("a folder of our own");
    assert!(matches!(check_same_file(&file, &site.target_path()), Err(RestoreError::Changed { .. })));
}

#[test]
fn a_store_of_a_newer_build_is_not_taken_for_a_damaged_one() {
    let site = StoreFixture::new();
    drop(site.store_of_format("guard.redb", 5, FORMAT + 1));
    let refused = site.open_target().err().expect("nobody here knows what it has let in");
    assert!(matches!(refused, RestoreError::Newer(_)), "{refused}");
    fs::write(site.target_path(), "no store at all").expect("a folder of our own");
    site.restore(site.open_target().expect("damaged for good"), 20).expect("made");
}

#[test]
fn a_backup_that_stands_in_the_place_of_a_store_counts_for_what_it_says() {
    let site = StoreFixture::new();
    let store = site.store("newer.redb", 50);
    store.copy(&mut File::create(site.target_path()).expect("a folder of our own")).expect("written");
    let refused = site.restore(site.free_target(), 49).expect_err("below");
    assert!(matches!(refused, RestoreError::Floor { floor: 49, highest: 50, .. }), "{refused}");
}

/// The command was killed between the two renames.
#[test]
fn what_a_restore_has_moved_aside_is_not_forgotten_where_nothing_has_come_to_its_place() {
    let site = StoreFixture::new();
    drop(site.store("guard.redb.replaced-2", 30));
    drop(site.store("guard.redb.replaced-10", 50));
    drop(site.store("guard.redb.replaced-010", 99));
    drop(site.store("other.redb.replaced-11", 99));
    let refused = site.restore(site.free_target(), 49).expect_err("it would let 50 in again");
    assert!(matches!(refused, RestoreError::Floor { floor: 49, highest: 50, .. }), "{refused}");
    let made = site.restore(site.free_target(), 50).expect("made");
    assert_eq!(made.aside, None);
    let made = site.restore(site.free_target(), 60).expect("made");
    assert_eq!(made.aside, Some(site.path("guard.redb.replaced-11")), "the newest has the largest number");
}
