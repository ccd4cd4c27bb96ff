//! A backup is of one moment, whole or not there at all; and a store that is made of it (`restored`) lets in nothing that
//! came before it was made.

mod restored;
mod scene;

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use fencegate_guard::store::backup::{BackupFormatError, RowKind, read};
use fencegate_tests::{
    gateway::{LogLine, write_policy},
    guard::{GuardFixture, GuardLaunch, StampedRequest},
    guarded::with_short_times,
    scratch,
    wait::wait_until,
};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use self::scene::{BackupFixture, said};

/// The last epoch that was acknowledged, and the last that was sent, of each key.
type EpochsByKey = Arc<Mutex<HashMap<String, (u64, u64)>>>;

/// Writes of one key after another, each under a new tenure, until told to stop.
async fn load(guard: Arc<BackupFixture>, key: String, sent: EpochsByKey, stop: Arc<AtomicBool>) {
    for epoch in 20.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        sent.lock().expect("whole").entry(key.clone()).or_default().1 = epoch;
        let answer = guard.guard.send(&StampedRequest::new(&key, epoch).post("/pay")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        sent.lock().expect("whole").entry(key.clone()).or_default().0 = epoch;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_of_one_moment_and_nobody_else_can_read_it() {
    let beside = GuardFixture::new().await;
    let kept = Arc::new(BackupFixture::before(&beside).await);
    let (sent, stop) = (EpochsByKey::default(), Arc::new(AtomicBool::new(false)));
    let loads: Vec<_> = (0..8)
        .map(|n| tokio::spawn(load(kept.clone(), format!("k/{n}"), sent.clone(), stop.clone())))
        .collect();
    let busy = async {
        while sent.lock().expect("whole").values().filter(|(done, _)| *done > 25).count() < 8 {
            tokio::task::yield_now().await;
        }
    };
    wait_until("some load", busy, || kept.guard.log()).await;
    let before = sent.lock().expect("whole").clone();
    let told = kept.backed_up().await;
    let after = sent.lock().expect("whole").clone();
    stop.store(true, Ordering::SeqCst);
    for load in loads {
        load.await.expect("no panic");
    }

    let mut marks = HashMap::new();
    let header = read::<BackupFormatError>(&kept.backup, |row| {
        if row.kind == RowKind::Mark {
            let epoch = u64::from_be_bytes(row.value[..8].try_into().expect("eight"));
            marks.insert(String::from_utf8(row.key).expect("text"), epoch);
        }
        Ok(())
    });
    let header = header.expect("whole");
    assert_eq!((told["highest"].as_u64(), told["keys"].as_u64()), (Some(header.highest), Some(8)));
    let mut moved = 0;
    for (key, epoch) in &marks {
        assert!(*epoch >= before[key].0, "{key}: {epoch} is less than what was acknowledged before");
        assert!(*epoch <= after[key].1, "{key}: {epoch} is more than was ever sent");
        moved += u64::from(after[key].1 > before[key].0 + 1);
    }
    assert!(moved > 0, "nothing went on while it was made");
    assert_eq!(header.highest, marks.values().copied().max().expect("eight of them"));
    let audited = |line: &LogLine| line.message() == "audit" && line.field("asked") == "backup of the store";
    kept.guard.wait_line("who has taken it", audited).await;
    let mode = fs::metadata(&kept.backup).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let (code, _, log) = kept.backs_up(&[]).await;
    assert_eq!(code, Some(1));
    assert!(log.contains("FG0612") && log.contains("--overwrite"), "{log}");
    let (code, _, log) = kept.backs_up(&["--overwrite"]).await;
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test]
async fn a_backup_does_not_start_as_a_store_and_stays_what_it_is() {
    let beside = GuardFixture::new().await;
    let kept = BackupFixture::before(&beside).await;
    kept.backed_up().await;
    let launch = kept.guard.stop().await;
    fs::rename(&kept.backup, launch.store()).expect("our own files");
    let before = fs::read(launch.store()).expect("there");
    let output = launch.expect_start_failure().await;
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("is a backup, and no store") && log.contains("guard restore"), "{log}");
    assert_eq!(fs::read(launch.store()).expect("there"), before);
}

/// A backup has kept answers in it, which no other user of the machine may read.
#[tokio::test]
async fn without_a_token_to_show_nobody_gets_one() {
    let beside = GuardFixture::new().await;
    let open = beside.guard().await;
    let kept = BackupFixture::of(beside.launch().await).await;
    for (admin, more) in [(open.admin, "auth"), (kept.guard.admin, "bearer token")] {
        let (file, admin) = (kept.backup.display().to_string(), admin.to_string());
        let (code, _, log) = said(&["guard", "backup", &file, "--admin", &admin]).await;
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains("FG0602") && log.contains(more), "{log}");
        kept.nothing_is_left();
    }
}

#[tokio::test]
async fn a_guard_that_is_killed_amid_a_backup_leaves_none_and_starts_again() {
    let beside = GuardFixture::new().await;
    let launch = with_short_times(beside.launch().await);
    let kept = BackupFixture::of(launch.failpoint("guard_backs_up", "1*sleep(60000)")).await;
    kept.executes(&StampedRequest::new("a", 20), "/pay").await;
    let words = kept.words();
    let asked = tokio::spawn(async move {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        said(&words).await
    });
    kept.guard.wait_at_failpoint("guard_backs_up").await;
    kept.executes(&StampedRequest::new("a", 30), "/beside").await;
    let BackupFixture { guard, token, backup } = kept;
    let launch = guard.kill().await;
    let (code, _, log) = asked.await.expect("no panic");
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("FG0601"), "{log}");
    let kept = BackupFixture { guard: launch.start().await, token, backup };
    kept.nothing_is_left();
    assert_eq!(kept.backed_up().await["highest"], 30);
}

#[tokio::test]
async fn a_disk_that_is_full_leaves_no_backup_and_a_guard_that_goes_on() {
    let beside = GuardFixture::new().await;
    let kept = BackupFixture::before(&beside).await;
    for n in 0..60 {
        kept.executes(&StampedRequest::new(&format!("k/{n}"), 20).once(n), "/pay").await;
    }
    let fencegate = scratch::binaries().join("fencegate").display().to_string();
    let words = kept.words().join(" ");
    // Files that grow beyond 4 KiB are refused to the command, and to nobody else.
    let limited = format!("trap '' XFSZ; ulimit -f 8; exec {fencegate} {words}");
    let output = spawn_blocking(move || std::process::Command::new("sh").args(["-c", &limited]).output());
    let output = output.await.expect("no panic").expect("started");
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("FG0612"), "{log}");
    kept.nothing_is_left();
    kept.executes(&StampedRequest::new("a", 30), "/pay").await;
    assert_eq!(kept.backed_up().await["operations"], 60);
}

#[tokio::test]
async fn the_store_of_a_guard_that_is_stopped_is_copied_without_it() {
    let beside = GuardFixture::new().await;
    let kept = BackupFixture::before(&beside).await;
    kept.executes(&StampedRequest::new("a", 20), "/pay").await;
    let file = write_policy(kept.guard.launch().home(), &kept.guard.launch().file().to_string());
    let (file, backup) = (file.display().to_string(), kept.backup.display().to_string());
    let offline = ["guard", "backup", &backup, "-c", &file, "--offline", "--format", "json"];
    let (code, _, log) = said(&offline).await;
    assert_eq!(code, Some(1), "its guard runs: {log}");
    kept.nothing_is_left();
    let launch = kept.guard.stop().await;
    let (code, out, log) = said(&offline).await;
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(serde_json::from_str::<Value>(&out).expect("JSON")["highest"], 20);
    // The backup did not count as a start of the guard.
    let guard = launch.start().await;
    assert_eq!(
        guard.send(&StampedRequest::new("a", 20).with_dispatch(2).post("/pay")).await.status,
        200,
        "the tenure goes on"
    );
}

#[tokio::test]
async fn a_store_in_a_database_is_left_to_the_tools_of_the_database() {
    let home = scratch::temp_dir();
    let url = home.path().join("url");
    fs::write(&url, "postgresql://guard:secret@127.0.0.1:1/guard").expect("our own file");
    let launch = GuardLaunch::for_upstream(([127, 0, 0, 1], 1).into());
    let file = launch.file().clone().with("/store", json!({"postgres": {"url_file": url}}));
    let file = write_policy(home.path(), &file.to_string()).display().to_string();
    let backup = home.path().join("night.backup").display().to_string();
    for words in [
        &["guard", "backup", &backup, "-c", &file, "--offline"][..],
        &["guard", "restore", &backup, "-c", &file, "--floor", "9"],
    ] {
        let (code, _, log) = said(words).await;
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains("FG0613"), "{log}");
    }
}
