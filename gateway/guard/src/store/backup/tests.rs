use std::{fs, path::PathBuf, time::Duration};

use super::*;
use crate::store::StoreIdentity;

fn header() -> BackupHeader {
    BackupHeader {
        identity: StoreIdentity { format: 2, store: "s-1".into(), ensemble: "e-1".into() },
        taken: 1_700_000_000,
        highest: 9,
        floor: 5,
        era: 1,
        time: Some(77),
        max_execution: Some(Duration::from_secs(30)),
        marks: 2,
        operations: 1,
    }
}

fn written(header: &BackupHeader) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writing = BackupWriter::begin(&mut bytes, header).expect("memory takes every byte");
    for (kind, key, value) in [
        (RowKind::Mark, b"a".as_slice(), [7; 16].as_slice()),
        (RowKind::Mark, b"b", &[8; 16]),
        (RowKind::Operation, &[3; 32], b"an entry\n"),
    ] {
        writing.row(kind, key, value).expect("memory takes every byte");
    }
    writing.end().expect("memory takes every byte");
    bytes
}

struct TestFolder(tempfile::TempDir);

impl TestFolder {
    fn with(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join("backup");
        fs::write(&path, bytes).expect("a folder of our own");
        path
    }
}

fn place() -> TestFolder {
    TestFolder(tempfile::tempdir().expect("a folder"))
}

#[test]
fn what_was_written_is_read() {
    let place = place();
    let path = place.with(&written(&header()));
    let mut rows = Vec::new();
    let read = read::<BackupFormatError>(&path, |row| {
        rows.push(row);
        Ok(())
    });
    assert_eq!(read.expect("whole"), header());
    assert_eq!(rows.len(), 3);
    assert_eq!(
        rows[2],
        BackupRow { kind: RowKind::Operation, key: vec![3; 32], value: b"an entry\n".into() }
    );
}

#[test]
fn one_that_is_cut_off_anywhere_is_refused() {
    let (place, whole) = (place(), written(&header()));
    for length in 0..whole.len() {
        verify(&place.with(&whole[..length])).expect_err("a part of it");
    }
    let more = [&whole[..], b"\n"].concat();
    assert!(matches!(verify(&place.with(&more)), Err(BackupFormatError::Corrupt(_))));
}

#[test]
fn one_of_which_a_bit_has_changed_is_refused() {
    let (place, whole) = (place(), written(&header()));
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            verify(&place.with(&changed)).expect_err("not what was written");
        }
    }
}

#[test]
fn one_that_counts_otherwise_than_it_says_is_refused() {
    let place = place();
    let fewer = BackupHeader { marks: 1, ..header() };
    assert!(matches!(verify(&place.with(&written(&fewer))), Err(BackupFormatError::Corrupt(_))));
}

#[test]
fn of_what_is_none_it_is_said_what_it_is() {
    let place = place();
    assert!(matches!(verify(&place.with(b"redb\x1a\x0a\xa9\x0d\x0a")), Err(BackupFormatError::Foreign)));
    assert!(matches!(verify(&place.with(b"fencegate guard backup 2\n{}\n")), Err(BackupFormatError::Newer)));
    let newer = BackupHeader { identity: StoreIdentity { format: 3, ..header().identity }, ..header() };
    assert!(matches!(verify(&place.with(&written(&newer))), Err(BackupFormatError::Newer)));
    assert!(matches!(verify(&place.with(b"").with_extension("none")), Err(BackupFormatError::Unreadable(_))));
}
