use std::{
    collections::HashMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    time::Duration,
};

use fencegate_policies::{key::ResourceKey, operation::OperationId, token::FencingToken};

use super::*;
use crate::{
    operation::{JournalEntryState, OperationJournalEntry, StoredResponse},
    wall_clock::wall_clock_seconds,
};

const SECOND: Duration = Duration::from_secs(1);

fn identity() -> StoreIdentity {
    StoreIdentity { format: FORMAT, store: "s-1".into(), ensemble: "e-1".into() }
}

fn key(text: &str) -> ResourceKey {
    ResourceKey::parse(text).expect("a key")
}

fn mark(text: &str, write: u64) -> StoreMutation {
    StoreMutation::Mark { key: key(text), epochs: DurableKeyWatermarks { write: Some(write), read: None } }
}

fn entry(state: JournalEntryState) -> OperationJournalEntry {
    OperationJournalEntry {
        format: FORMAT,
        fingerprint: "ab".repeat(32),
        keys: vec![key("a")],
        token: FencingToken::new(7, 0, 1).expect("small"),
        method: "POST".into(),
        target: "/v1/x".into(),
        name: Some("n".into()),
        askable: true,
        admitted: 100,
        began: Some(100),
        keep: 50,
        state,
    }
}

/// What was committed is loaded after the store is opened again; the marker of a clean stop counts once.
#[test]
fn committed_changes_survive_reopen() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("guard.redb");
    let whole = KeyWatermarks { key: key("a"), write: FencingToken::new(7, 1, 3).ok(), read: None };
    {
        let store = RedbStore::init(&path, &identity(), 5).expect("a new store");
        store.commit(&[mark("a", 7), mark("b", 8), StoreMutation::Floor(6)]).expect("written");
        store.commit(&[StoreMutation::Forget { key: key("b") }, StoreMutation::Era(2)]).expect("written");
        store
            .commit(&[StoreMutation::AtWork { key: key("a") }, StoreMutation::AtWork { key: key("c") }])
            .expect("written");
        store
            .commit(&[StoreMutation::AtRest { key: key("c") }, StoreMutation::AtWorkListed])
            .expect("written");
        store.commit(&[StoreMutation::MaxExecution(SECOND), StoreMutation::Time(77)]).expect("written");
        store.commit(&[StoreMutation::Watermarks(whole.clone())]).expect("written");
        store.commit(&[StoreMutation::CleanShutdown(CleanShutdownState::default())]).expect("written");
    }
    let store = RedbStore::open(&path).expect("there");
    let recovered = store.recover(SECOND * 2).expect("readable");
    assert_eq!((recovered.floor, recovered.era, &recovered.identity), (6, 2, &identity()));
    assert_eq!(
        recovered.marks,
        HashMap::from([(key("a"), DurableKeyWatermarks { write: Some(7), read: None })])
    );
    assert_eq!(
        recovered.clean_stop,
        Some(CleanShutdownState { marks: vec![whole], ..CleanShutdownState::default() })
    );
    assert_eq!((recovered.time, recovered.max_execution), (77, Some(SECOND)));
    assert_eq!(recovered.at_work, RecoveredActiveKeys::Keys(vec![key("a")]));
    let again = store.recover(SECOND).expect("readable");
    assert_eq!(again.clean_stop, None, "the marker counts once");
    assert_eq!(again.max_execution, Some(SECOND * 2), "the longer one: it may have sent something");
}

/// A missing store is an error when it is opened, and an existing one when it is created; its file has mode 0600.
#[test]
fn store_is_never_recreated_silently() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("guard.redb");
    assert!(matches!(RedbStore::open(&path), Err(StoreError::Missing { .. })));
    drop(RedbStore::init(&path, &identity(), 5).expect("a new store"));
    assert!(matches!(RedbStore::init(&path, &identity(), 5), Err(StoreError::Exists { .. })));
    let mode = fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "answers are kept in it");
}

/// Through a dangling link the store would be created at the link's target, in a folder with other permissions.
#[test]
fn init_refuses_dangling_link() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("guard.redb");
    let elsewhere = folder.path().join("elsewhere");
    symlink(&elsewhere, &path).expect("a folder of our own");
    assert!(matches!(RedbStore::init(&path, &identity(), 5), Err(StoreError::Exists { .. })));
    assert!(!elsewhere.exists());
}

/// A finished operation is found until it expires; one with an unknown outcome never expires.
#[test]
fn operation_is_kept_until_expired() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = RedbStore::init(&folder.path().join("guard.redb"), &identity(), 5).expect("a new store");
    let id = OperationId::from_bytes([3; 32]);
    store
        .commit(&[StoreMutation::Operation { id, entry: entry(JournalEntryState::Admitted).into() }])
        .expect("written");
    assert_eq!(store.unresolved_operations(9).expect("readable").len(), 1);
    assert!(store.expired(u64::MAX, 9).expect("readable").is_empty());
    let body = Some(bytes::Bytes::from_static(b"{\"a\": 1}\0"));
    let kept = StoredResponse { status: 201, fields: vec![("location".into(), "/x".into())], body };
    let done = entry(JournalEntryState::Done { at: 200, answer: Some(kept) });
    store.commit(&[StoreMutation::Operation { id, entry: done.clone().into() }]).expect("written");
    assert_eq!(store.operation(&id).expect("readable"), Some(done));
    assert!(store.unresolved_operations(9).expect("readable").is_empty());
    assert!(store.expired(250, 9).expect("readable").is_empty());
    assert_eq!(store.expired(251, 9).expect("readable"), [id]);
    let found = store.find_by_reference(&id.reference()).expect("readable");
    assert_eq!(found.map(|(id, _)| id), Some(id));
    let other = OperationId::from_bytes([4; 32]).reference();
    assert_eq!(store.find_by_reference(&other).expect("readable"), None);
    store.commit(&[StoreMutation::ForgetFinished { id, before: 250 }]).expect("written");
    assert!(store.operation(&id).expect("readable").is_some(), "kept anew since somebody looked");
    store.commit(&[StoreMutation::ForgetFinished { id, before: 251 }]).expect("written");
    assert_eq!(store.operation(&id).expect("readable"), None);
    store
        .commit(&[StoreMutation::Operation { id, entry: entry(JournalEntryState::Admitted).into() }])
        .expect("written");
    store.commit(&[StoreMutation::ForgetFinished { id, before: u64::MAX }]).expect("written");
    assert!(store.operation(&id).expect("readable").is_some(), "unknown");
    store.commit(&[StoreMutation::ForgetOperation { id }]).expect("written");
    assert_eq!(store.operation(&id).expect("readable"), None);
    assert!(store.expired(u64::MAX, 9).expect("readable").is_empty());
    assert_eq!(store.journal(), JournalSize::default());
}

/// A clean stop was killed before its marker. The whole watermarks that it had written must not count for a later
/// stop.
#[test]
fn whole_watermarks_without_marker_are_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = RedbStore::init(&folder.path().join("guard.redb"), &identity(), 5).expect("a new store");
    let whole = |dispatch| {
        StoreMutation::Watermarks(KeyWatermarks {
            key: key("a"),
            write: FencingToken::new(7, 1, dispatch).ok(),
            read: None,
        })
    };
    store.commit(&[mark("a", 7), whole(3)]).expect("written");
    assert_eq!(store.recover(SECOND).expect("readable").clean_stop, None);
    store.commit(&[StoreMutation::CleanShutdown(CleanShutdownState::default())]).expect("written");
    let stop = store.recover(SECOND).expect("readable").clean_stop.expect("left in order");
    assert_eq!(stop.marks, []);
}

/// A store of an older format loads without a list of keys at work, and is upgraded to the present format.
#[test]
fn older_format_is_upgraded_without_list() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("guard.redb");
    let older = StoreIdentity { format: 1, ..identity() };
    let store = RedbStore::init(&path, &older, 5).expect("a new store");
    assert_eq!(store.recover(SECOND).expect("readable").at_work, RecoveredActiveKeys::NewStore);
    store.downgrade_to_format_1().expect("written");
    let id = OperationId::from_bytes([3; 32]);
    store
        .commit(&[StoreMutation::Operation { id, entry: entry(JournalEntryState::Admitted).into() }])
        .expect("written");
    let recovered = store.recover(SECOND).expect("readable");
    assert_eq!((recovered.at_work, recovered.identity.format), (RecoveredActiveKeys::NotListed, FORMAT));
    assert_eq!((store.journal().entries, store.journal().bytes > 100), (1, true));
}

/// The time of a store of an older format begins at its newest journal entry, not at the wall clock.
#[test]
fn older_format_takes_time_from_journal() {
    const DAY: u64 = 86_400;
    let now = wall_clock_seconds();
    // The older build's clock was a day slow, or a day fast, compared with the clock of now.
    for newest in [now - DAY, now + DAY] {
        let folder = tempfile::tempdir().expect("a folder");
        let store = RedbStore::init(&folder.path().join("guard.redb"), &identity(), 5).expect("a new store");
        let done = JournalEntryState::Done { at: newest - 9, answer: None };
        let entries = [
            (3, newest - 10, done),
            (4, newest, JournalEntryState::Admitted),
            (5, newest - 20, JournalEntryState::Admitted),
        ];
        for (number, admitted, state) in entries {
            let entry = OperationJournalEntry { admitted, began: None, ..entry(state) }.into();
            let id = OperationId::from_bytes([number; 32]);
            store.commit(&[StoreMutation::Operation { id, entry }]).expect("written");
        }
        store.downgrade_to_format_1().expect("written");
        let time = store.recover(SECOND).expect("readable").time;
        assert_eq!(time, newest);
        assert!(
            store.expired(time, 9).expect("readable").is_empty(),
            "finished nine seconds ago, kept fifty"
        );
        assert_eq!(store.expired(time + 50, 9).expect("readable").len(), 1);
        assert_eq!(store.recover(SECOND).expect("readable").time, newest, "written down");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let store = RedbStore::init(&folder.path().join("guard.redb"), &identity(), 5).expect("a new store");
    assert!(store.recover(SECOND).expect("readable").time >= now, "without a journal");
}

mod departed;
mod restored;
