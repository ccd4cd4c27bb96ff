//! Records of processes that start, end, and overlap.

use fencegate_process::randomness::SystemRandomness;
use tempfile::TempDir;

use super::*;

fn record(highest: u64) -> HighestEpochRecord {
    HighestEpochRecord { installation: "ours".into(), era: 0, highest }
}

fn claim(home: &TempDir) -> (StateDir, Vec<HighestEpochRecord>) {
    StateDir::claim(home.path(), &SystemRandomness).expect("a folder of our own")
}

fn files(home: &TempDir, kind: &str) -> usize {
    let all = fs::read_dir(home.path()).expect("readable");
    all.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().to_string_lossy().ends_with(kind)))
        .count()
}

#[test]
fn next_process_finds_record() {
    let home = TempDir::new().expect("a folder");
    let (first, found) = claim(&home);
    assert_eq!(found, []);
    first.write(&record(7)).expect("written");
    first.write(&record(9)).expect("written");
    drop(first);
    let (_second, found) = claim(&home);
    assert_eq!(found, [record(9)]);
    assert_eq!((files(&home, RECORD), files(&home, LOCK), files(&home, DRAFT)), (1, 1, 0), "the first one's");
}

/// An older process that still writes does not lower what a newer one has recorded.
#[test]
fn late_write_keeps_newer_record() {
    let home = TempDir::new().expect("a folder");
    let (older, _) = claim(&home);
    older.write(&record(10)).expect("written");
    let (newer, found) = claim(&home);
    assert_eq!(found, [record(10)]);
    newer.write(&record(50)).expect("written");
    // The older process was frozen, and writes its lower record now.
    older.write(&record(12)).expect("written");
    assert_eq!(read_records(home.path()).expect("readable"), [record(50)]);
    assert_eq!(files(&home, RECORD), 2);
    drop((newer, older));
    let (_last, found) = claim(&home);
    assert_eq!(found, [record(50)]);
    assert_eq!(files(&home, RECORD), 1, "both have ended");
}

/// After two overlapping processes have ended, the next one finds the highest epoch of both.
#[test]
fn successor_finds_highest_of_overlapping_processes() {
    let home = TempDir::new().expect("a folder");
    let (older, _) = claim(&home);
    older.write(&record(10)).expect("written");
    let (newer, _) = claim(&home);
    older.write(&record(70)).expect("written");
    drop(newer);
    drop(older);
    assert_eq!(claim(&home).1, [record(70)]);
}

/// A process that ended before it wrote a record leaves no files; a live one keeps its lock file.
#[test]
fn process_without_record_leaves_no_files() {
    let home = TempDir::new().expect("a folder");
    for _ in 0..3 {
        drop(claim(&home));
    }
    let alive = claim(&home);
    assert_eq!((files(&home, LOCK), files(&home, RECORD)), (1, 0));
    drop(claim(&home));
    assert_eq!(files(&home, LOCK), 2, "who lives keeps its place");
    drop(alive);
}

/// An unreadable record is reported with its path and the remedy, and the file stays unchanged.
#[test]
fn unreadable_record_is_reported_and_kept() {
    let home = TempDir::new().expect("a folder");
    let path = home.path().join(format!("{PREFIX}{}{RECORD}", Guid::new(&SystemRandomness)));
    for (bytes, word) in [(&b"{\"form"[..], "damaged"), (b"{\"format\":9}", "format 9"), (b"", "damaged")] {
        fs::write(&path, bytes).expect("written");
        let message =
            StateDir::claim(home.path(), &SystemRandomness).expect_err("not understood").to_string();
        assert!(message.starts_with("FG0519: ") && message.contains(word), "{message}");
        assert!(message.contains(&path.display().to_string()) && message.contains("era bump"), "{message}");
        assert_eq!(fs::read(&path).expect("still there"), bytes);
    }
}

/// A state folder that is missing or is a file is reported with its path.
#[test]
fn missing_folder_is_reported() {
    let home = TempDir::new().expect("a folder");
    let file = home.path().join("file");
    fs::write(&file, "").expect("written");
    for folder in [home.path().join("none"), file] {
        let message = StateDir::claim(&folder, &SystemRandomness).expect_err("no folder").to_string();
        assert!(
            message.starts_with("FG0514: ") && message.contains(&folder.display().to_string()),
            "{message}"
        );
    }
}

/// Two installations that share one state folder keep a record each.
#[test]
fn installations_in_one_folder_stay_separate() {
    let home = TempDir::new().expect("a folder");
    let theirs = HighestEpochRecord { installation: "theirs".into(), ..record(900) };
    let (one, _) = claim(&home);
    let (other, _) = claim(&home);
    one.write(&record(7)).expect("written");
    other.write(&theirs).expect("written");
    drop((one, other));
    for _ in 0..3 {
        let (again, mut found) = claim(&home);
        found.sort_by_key(|record| record.highest);
        assert_eq!(found, [record(7), theirs.clone()]);
        again.write(&record(7)).expect("written");
    }
    drop(claim(&home));
    assert_eq!(files(&home, RECORD), 2, "one of each stays");
}

/// A record that is a folder or an oversized file is damaged, and is not read to its end.
#[test]
fn oversized_or_irregular_record_is_damaged() {
    let home = TempDir::new().expect("a folder");
    let path = home.path().join(format!("{PREFIX}{}{RECORD}", Guid::new(&SystemRandomness)));
    fs::create_dir(&path).expect("a folder in its place");
    assert!(matches!(read_records(home.path()), Err(StateDirError::Damaged { .. })));
    fs::remove_dir(&path).expect("empty");
    let endless = File::create(&path).expect("a file");
    endless.set_len(1 << 40).expect("sparse");
    assert!(matches!(read_records(home.path()), Err(StateDirError::Damaged { .. })));
}

/// Files of other programs in the state folder are neither read nor removed.
#[test]
fn foreign_files_are_left_alone() {
    let home = TempDir::new().expect("a folder");
    for name in ["seen-.json", "seen-x.json", "guard.redb", "seen.json"] {
        fs::write(home.path().join(name), "not ours").expect("written");
    }
    let (folder, found) = claim(&home);
    folder.write(&record(1)).expect("written");
    drop(folder);
    assert_eq!((found, claim(&home).1), (vec![], vec![record(1)]));
    assert!(["seen-.json", "seen-x.json", "guard.redb"].iter().all(|name| home.path().join(name).exists()));
}
