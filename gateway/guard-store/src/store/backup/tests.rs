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

fn encode_backup(header: &BackupHeader) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writing = BackupWriter::begin(&mut bytes, header).expect("memory takes every byte");
    for (kind, key, value) in [
        (BackupRowKind::Mark, b"a".as_slice(), [7; 16].as_slice()),
        (BackupRowKind::Mark, b"b", &[8; 16]),
        (BackupRowKind::Operation, &[3; 32], b"an entry\n"),
    ] {
        writing.write_row(kind, key, value).expect("memory takes every byte");
    }
    writing.write_end().expect("memory takes every byte");
    bytes
}

struct TestFolder(tempfile::TempDir);

impl TestFolder {
    fn create_file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join("backup");
        fs::write(&path, bytes).expect("a folder of our own");
        path
    }
}

fn test_folder() -> TestFolder {
    TestFolder(tempfile::tempdir().expect("a folder"))
}

#[test]
fn written_backup_reads_back() {
    let place = test_folder();
    let path = place.create_file(&encode_backup(&header()));
    let mut rows = Vec::new();
    let read = read_backup_rows::<BackupFormatError>(&path, |row| {
        rows.push(row);
        Ok(())
    });
    assert_eq!(read.expect("whole"), header());
    assert_eq!(rows.len(), 3);
    assert_eq!(
        rows[2],
        BackupRow { kind: BackupRowKind::Operation, key: vec![3; 32], value: b"an entry\n".into() }
    );
}

/// A backup that is cut off at any byte, or has bytes behind its end, is refused.
#[test]
fn truncated_or_longer_backup_is_refused() {
    let place = test_folder();
    let whole = encode_backup(&header());
    for length in 0..whole.len() {
        verify_backup(&place.create_file(&whole[..length])).expect_err("a part of it");
    }
    let more = [&whole[..], b"\n"].concat();
    assert!(matches!(verify_backup(&place.create_file(&more)), Err(BackupFormatError::Corrupt(_))));
}

/// A backup of which a single bit has changed is refused.
#[test]
fn flipped_bit_is_refused() {
    let place = test_folder();
    let whole = encode_backup(&header());
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            verify_backup(&place.create_file(&changed)).expect_err("not what was written");
        }
    }
}

/// A backup whose rows are not as many as its header says is refused.
#[test]
fn wrong_row_count_is_refused() {
    let place = test_folder();
    let fewer = BackupHeader { marks: 1, ..header() };
    assert!(matches!(
        verify_backup(&place.create_file(&encode_backup(&fewer))),
        Err(BackupFormatError::Corrupt(_))
    ));
}

/// The error tells a foreign file, a newer backup and an unreadable file apart.
#[test]
fn foreign_or_newer_file_is_named() {
    let place = test_folder();
    assert!(matches!(
        verify_backup(&place.create_file(b"redb\x1a\x0a\xa9\x0d\x0a")),
        Err(BackupFormatError::Foreign)
    ));
    assert!(matches!(
        verify_backup(&place.create_file(b"fencegate guard backup 2\n{}\n")),
        Err(BackupFormatError::Newer)
    ));
    let newer = BackupHeader { identity: StoreIdentity { format: 3, ..header().identity }, ..header() };
    assert!(matches!(
        verify_backup(&place.create_file(&encode_backup(&newer))),
        Err(BackupFormatError::Newer)
    ));
    assert!(matches!(
        verify_backup(&place.create_file(b"").with_extension("none")),
        Err(BackupFormatError::Unreadable(_))
    ));
}
