//! A store that was made from a backup: its contents, and the tokens that it refuses.

use std::{fs, io, path::PathBuf};

use fencegate_process::clock::BootInstant;

use super::*;
use crate::{
    admission::{AdmissionTable, PresentedDispatch, QuarantineReason, QuarantineScope},
    error::DispatchRefusedError,
    store::backup::{BackupFormatError, verify_backup},
};

struct TestFolder(tempfile::TempDir);

impl TestFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn store(&self) -> RedbStore {
        RedbStore::init(&self.path("guard.redb"), &identity(), 5).expect("a new store")
    }

    fn backup(&self, store: &RedbStore) -> PathBuf {
        let path = self.path("backup");
        let mut bytes = Vec::new();
        store.write_backup(&mut bytes).expect("memory takes every byte");
        fs::write(&path, bytes).expect("a folder of our own");
        path
    }
}

fn restore_options(floor: u64) -> RestoreOptions {
    RestoreOptions { store: "s-2".into(), floor, send_within: SECOND, max_execution: SECOND * 2 }
}

/// The tests write eight operations for each of these: more than fit into one transaction.
const MANY: u8 = 250;

/// A restored store has the operations of its backup, no watermark and no clean stop; it is marked as restored.
#[test]
fn restored_store_keeps_operations_drops_watermarks() {
    let place = TestFolder::new();
    let store = place.store();
    store
        .commit(&[mark("a", 7), mark("b", 9), StoreMutation::Era(2), StoreMutation::Time(77)])
        .expect("written");
    store.commit(&[StoreMutation::MaxExecution(SECOND * 30), StoreMutation::AtWorkListed]).expect("written");
    store.commit(&[StoreMutation::CleanShutdown(CleanShutdownState::default())]).expect("written");
    let body = Some(bytes::Bytes::from_static(b"paid"));
    let done = JournalEntryState::Done {
        at: 90,
        answer: Some(StoredResponse { status: 201, fields: Vec::new(), body }),
    };
    let operations = (0..MANY).flat_map(|number| {
        let state = if number % 2 == 0 { done.clone() } else { JournalEntryState::Admitted };
        let id = move |other| {
            OperationId::from_bytes([[other].as_slice(), &[number; 31]].concat().try_into().expect("32"))
        };
        (0..8)
            .map(move |other| StoreMutation::Operation { id: id(other), entry: entry(state.clone()).into() })
    });
    store.commit(&operations.collect::<Vec<_>>()).expect("written");
    let backup = place.backup(&store);
    let header = verify_backup(&backup).expect("whole");
    assert_eq!((header.highest, header.floor, header.marks, header.operations), (9, 5, 2, 2000));

    let path = place.path("restored.redb");
    RedbStore::restore(&path, &backup, &restore_options(20)).expect("made");
    let made = RedbStore::open(&path).expect("a store");
    let recovered = made.recover(SECOND).expect("readable");
    assert_eq!(recovered.identity, StoreIdentity { store: "s-2".into(), ..identity() });
    assert_eq!((recovered.floor, recovered.era, recovered.time), (20, 2, 77));
    assert_eq!(recovered.at_work, RecoveredActiveKeys::Restored);
    assert_eq!(recovered.clean_stop, None, "the word of an end before the backup");
    assert_eq!(recovered.marks, HashMap::new());
    assert_eq!(recovered.max_execution, Some(SECOND * 31), "and what may still be sent");
    assert_eq!(made.journal().entries, 2000);
    assert_eq!(made.unresolved_operations(9999).expect("readable").len(), 1000);
    let id = OperationId::from_bytes([2; 32]);
    assert_eq!(made.operation(&id).expect("readable"), store.operation(&id).expect("readable"));
}

/// A guard on a restored store admits no token up to its floor, for any key, and quarantines every key.
#[test]
fn restored_guard_refuses_overtaken_tokens() {
    let place = TestFolder::new();
    let store = place.store();
    store.commit(&[mark("a", 7)]).expect("written");
    let path = place.path("restored.redb");
    RedbStore::restore(&path, &place.backup(&store), &restore_options(20)).expect("made");
    let recovered = RedbStore::open(&path).expect("a store").recover(SECOND).expect("readable");
    let now = BootInstant::from_nanos(1_000_000_000);
    let mut table = AdmissionTable::new(&recovered, now, SECOND);
    assert_eq!(table.highest_epoch(), 20, "what gateways are told of it");
    let closed = table.quarantine(now).expect("closed");
    assert_eq!(
        (closed.scope, closed.until),
        (QuarantineScope::EveryKey(QuarantineReason::Restored), now + SECOND * 3)
    );
    // `a` has a watermark below the floor, and `b` was first used after the backup.
    for text in ["a", "b"] {
        let claim = |epoch| PresentedDispatch {
            keys: vec![key(text)].into(),
            token: FencingToken::new(epoch, 1, 1).expect("small"),
            mode: fencegate_policies::plan::LockMode::Exclusive,
            era: None,
            parent: None,
        };
        for overtaken in [6, 7, 8, 19, 20] {
            let refused = table
                .check_and_raise_watermarks(&claim(overtaken), now)
                .expect_err("it may have been overtaken");
            assert!(matches!(refused, DispatchRefusedError::Floor { floor: 20 }), "{text}: {refused}");
        }
        table.check_and_raise_watermarks(&claim(21), now).expect("newer than all");
    }
}

/// A backup with an unlimited `max_execution` leads to a quarantine without an end.
#[test]
fn unlimited_execution_makes_quarantine_endless() {
    let place = TestFolder::new();
    let mut header = place.store().backup_header().expect("readable");
    header.max_execution = Some(Duration::MAX);
    assert_eq!(restore_options(20).quarantine_length(&header), Duration::MAX);
}

/// A floor below the highest epoch of the backup is refused, and no store is left that opens.
#[test]
fn restore_refuses_floor_below_backup() {
    let place = TestFolder::new();
    let store = place.store();
    store.commit(&[mark("a", 7)]).expect("written");
    let backup = place.backup(&store);
    let path = place.path("restored.redb");
    let refused =
        RedbStore::restore(&path, &backup, &restore_options(6)).expect_err("it would let 7 in again");
    assert!(matches!(refused, RestoreStoreError::Floor { floor: 6, highest: 7 }));
    assert!(RedbStore::open(&path).and_then(|store| store.recover(SECOND)).is_err());
}

/// After the restore of a truncated backup has failed, no store is left that opens.
#[test]
fn restore_of_truncated_backup_leaves_nothing() {
    let place = TestFolder::new();
    let store = place.store();
    for number in 0..9 {
        let id = OperationId::from_bytes([number; 32]);
        let entry = entry(JournalEntryState::Admitted).into();
        store.commit(&[StoreMutation::Operation { id, entry }]).expect("written");
    }
    let backup = place.backup(&store);
    let path = place.path("restored.redb");
    let whole = fs::read(&backup).expect("there");
    fs::write(&backup, &whole[..whole.len() - 1]).expect("there");
    let refused = RedbStore::restore(&path, &backup, &restore_options(20)).expect_err("not whole");
    assert!(matches!(refused, RestoreStoreError::Backup(BackupFormatError::Truncated)), "{refused}");
    assert!(RedbStore::open(&path).and_then(|store| store.recover(SECOND)).is_err());
}

/// A backup that is opened as a store is refused, with a hint at `guard restore`, and stays unchanged.
#[test]
fn backup_opened_as_store_is_refused() {
    let place = TestFolder::new();
    let backup = place.backup(&place.store());
    let before = fs::read(&backup).expect("there");
    let refused = RedbStore::open(&backup).map(drop).expect_err("no store");
    assert!(matches!(&refused, StoreError::Backup { .. }));
    assert!(refused.to_string().contains("guard restore"), "{refused}");
    assert_eq!(fs::read(&backup).expect("there"), before);
}

/// A target with space for this many bytes.
struct LimitedWriter(usize);

impl io::Write for LimitedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A target that commits changes while the backup is written: they must not be in it, and must not wait.
struct CommittingBackupTarget<'a> {
    store: &'a RedbStore,
    commits: u64,
    taken: Vec<u8>,
}

impl io::Write for CommittingBackupTarget<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.commits += 1;
        self.store.commit(&[mark("z", 100 + self.commits), mark("k0", 900)]).map_err(io::Error::other)?;
        self.taken.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A copy shows the store at one moment, despite commits meanwhile; a full disk leaves the store as it was.
#[test]
fn copy_is_consistent_snapshot() {
    let place = TestFolder::new();
    let store = place.store();
    let marks: Vec<_> = (0..9000).map(|number| mark(&format!("k{number}"), 50)).collect();
    store.commit(&marks).expect("written");
    let full = store.write_backup(&mut LimitedWriter(100_000)).expect_err("full");
    assert!(matches!(full, StoreBackupError::Write(error) if error.kind() == io::ErrorKind::StorageFull));
    let mut meanwhile = CommittingBackupTarget { store: &store, commits: 0, taken: Vec::new() };
    let header = store.write_backup(&mut meanwhile).expect("written");
    assert!(meanwhile.commits > 2, "nothing was committed while it was written");
    assert_eq!((header.highest, header.marks), (50, 9000));
    let path = place.path("backup");
    fs::write(&path, &meanwhile.taken).expect("a folder of our own");
    assert_eq!(verify_backup(&path).expect("whole"), header);
    let epochs = store.recover(SECOND).expect("readable").marks;
    assert_eq!(epochs[&key("k0")].highest(), 900);
}
