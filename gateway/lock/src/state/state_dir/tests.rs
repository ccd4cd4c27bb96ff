//! Records of processes that come, go, and stand beside each other.

use fencegate_process::randomness::SystemRandomness;
use tempfile::TempDir;

use super::*;

fn record(highest: u64) -> InstallationRecord {
    InstallationRecord { installation: "ours".into(), era: 0, highest }
}

fn claim(home: &TempDir) -> (StateDir, Vec<InstallationRecord>) {
    StateDir::claim(home.path(), &SystemRandomness).expect("a folder of our own")
}

fn files(home: &TempDir, kind: &str) -> usize {
    let all = fs::read_dir(home.path()).expect("readable");
    all.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().to_string_lossy().ends_with(kind)))
        .count()
}

#[test]
fn what_one_process_writes_the_next_one_finds() {
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

#[test]
fn an_older_process_that_still_writes_takes_nothing_from_the_newer_one() {
    let home = TempDir::new().expect("a folder");
    let (older, _) = claim(&home);
    older.write(&record(10)).expect("written");
    let (newer, found) = claim(&home);
    assert_eq!(found, [record(10)]);
    newer.write(&record(50)).expect("written");
    // The older process was frozen, and goes on now.
    older.write(&record(12)).expect("written");
    assert_eq!(read_records(home.path()).expect("readable"), [record(50)]);
    assert_eq!(files(&home, RECORD), 2);
    drop((newer, older));
    let (_last, found) = claim(&home);
    assert_eq!(found, [record(50)]);
    assert_eq!(files(&home, RECORD), 1, "both have ended");
}

#[test]
fn a_newer_process_that_has_ended_leaves_what_it_saw_to_the_older_one_s_successor() {
    let home = TempDir::new().expect("a folder");
    let (older, _) = claim(&home);
    older.write(&record(10)).expect("written");
    let (newer, _) = claim(&home);
    older.write(&record(70)).expect("written");
    drop(newer);
    drop(older);
    assert_eq!(claim(&home).1, [record(70)]);
}

#[test]
fn those_that_ended_before_they_saw_anything_leave_nothing() {
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

#[test]
fn what_is_not_understood_is_said_with_its_place_and_left_alone() {
    let home = TempDir::new().expect("a folder");
    let path = home.path().join(format!("{PREFIX}{}{RECORD}", Guid::new(&SystemRandomness)));
    for (bytes, word) in [(&b"{\"form"[..], "damaged"), (b"{\"format\":9}", "format 9"), (b"", "damaged")] {
        fs::write(&path, bytes).expect("written");
        let why = StateDir::claim(home.path(), &SystemRandomness).expect_err("not understood").to_string();
        assert!(why.starts_with("FG0519: ") && why.contains(word), "{why}");
        assert!(why.contains(&path.display().to_string()) && why.contains("era bump"), "{why}");
        assert_eq!(fs::read(&path).expect("still there"), bytes);
    }
}

#[test]
fn a_folder_that_is_not_there_or_no_folder_is_said() {
    let home = TempDir::new().expect("a folder");
    let file = home.path().join("file");
    fs::write(&file, "").expect("written");
    for folder in [home.path().join("none"), file] {
        let why = StateDir::claim(&folder, &SystemRandomness).expect_err("no folder").to_string();
        assert!(why.starts_with("FG0514: ") && why.contains(&folder.display().to_string()), "{why}");
    }
}

#[test]
fn two_installations_with_one_folder_take_nothing_from_each_other() {
    let home = TempDir::new().expect("a folder");
    let theirs = InstallationRecord { installation: "theirs".into(), ..record(900) };
    let ((one, _), (other, _)) = (claim(&home), claim(&home));
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

#[test]
fn what_is_no_short_file_is_damaged_and_not_read_to_its_end() {
    let home = TempDir::new().expect("a folder");
    let path = home.path().join(format!("{PREFIX}{}{RECORD}", Guid::new(&SystemRandomness)));
    fs::create_dir(&path).expect("a folder in its place");
    assert!(matches!(read_records(home.path()), Err(StateDirError::Damaged { .. })));
    fs::remove_dir(&path).expect("empty");
    let endless = File::create(&path).expect("a file");
    endless.set_len(1 << 40).expect("sparse");
    assert!(matches!(read_records(home.path()), Err(StateDirError::Damaged { .. })));
}

#[test]
fn files_of_others_are_neither_read_nor_removed() {
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
