//! A backup holds the store of one moment, and is either complete or absent. A store that is made of a backup
//! (`restored`) admits nothing from before the restore.
//!
//! The backup is made under load, and only a client with a token gets it. A backup that is cut off or altered is
//! refused, and a full disk or a killed guard leaves none. A store that is made of a backup admits no token from
//! before the restore, on known and on unknown keys, and gateways accept that store. Operations in the backup are
//! answered, and later ones are reported as unknown. A restore that is killed, or that finds a store or a guard in
//! its way, changes nothing.

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

use fencegate_guard_store::store::backup::{BackupFormatError, BackupRowKind, read_backup_rows};
use fencegate_testkit::{scratch, wait::wait_until};
use fencegate_tests::{
    gateway::{LogLine, write_policy},
    guard::{GuardFixture, GuardLaunch, StampedRequest},
    guarded::with_short_times,
};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use self::scene::{BackupFixture, run_verb};

/// For each key, the last epoch that was acknowledged and the last epoch that was sent.
type EpochsByKey = Arc<Mutex<HashMap<String, (u64, u64)>>>;

/// Sends one write of a key after another, each under a new tenure, until `stop` is set.
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

/// A backup under load is of one moment, is readable by its owner only, and is not overwritten without `--overwrite`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_under_load_is_consistent() {
    let fixture = GuardFixture::new().await;
    let source = Arc::new(BackupFixture::start(&fixture).await);
    let sent = EpochsByKey::default();
    let stop = Arc::new(AtomicBool::new(false));
    let loads: Vec<_> = (0..8)
        .map(|n| tokio::spawn(load(source.clone(), format!("k/{n}"), sent.clone(), stop.clone())))
        .collect();
    let busy = async {
        while sent.lock().expect("whole").values().filter(|(done, _)| *done > 25).count() < 8 {
            tokio::task::yield_now().await;
        }
    };
    wait_until("some load", busy, || source.guard.log()).await;
    // On a busy machine the load may not run while a backup is made. Then another backup is made.
    let (before, report, after) = loop {
        let before = sent.lock().expect("whole").clone();
        let report = source.backup_report().await;
        let after = sent.lock().expect("whole").clone();
        if before.iter().any(|(key, (done, _))| after[key].1 > done + 1) {
            break (before, report, after);
        }
        fs::remove_file(&source.backup).expect("our own file");
    };
    stop.store(true, Ordering::SeqCst);
    for load in loads {
        load.await.expect("no panic");
    }

    let mut marks = HashMap::new();
    let header = read_backup_rows::<BackupFormatError>(&source.backup, |row| {
        if row.kind == BackupRowKind::Mark {
            let epoch = u64::from_be_bytes(row.value[..8].try_into().expect("eight"));
            marks.insert(String::from_utf8(row.key).expect("text"), epoch);
        }
        Ok(())
    });
    let header = header.expect("whole");
    assert_eq!((report["highest"].as_u64(), report["keys"].as_u64()), (Some(header.highest), Some(8)));
    for (key, epoch) in &marks {
        assert!(*epoch >= before[key].0, "{key}: {epoch} is less than what was acknowledged before");
        assert!(*epoch <= after[key].1, "{key}: {epoch} is more than was ever sent");
    }
    assert_eq!(header.highest, marks.values().copied().max().expect("eight of them"));
    let audited = |line: &LogLine| line.message() == "audit" && line.field("asked") == "backup of the store";
    source.guard.wait_line("who has taken it", audited).await;
    let mode = fs::metadata(&source.backup).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let (code, _, log) = source.run_backup(&[]).await;
    assert_eq!(code, Some(1));
    assert!(log.contains("FG0612") && log.contains("--overwrite"), "{log}");
    let (code, _, log) = source.run_backup(&["--overwrite"]).await;
    assert_eq!(code, Some(0), "{log}");
}

/// A guard does not start on a backup in the place of its store, and leaves the file unchanged.
#[tokio::test]
async fn backup_does_not_start_as_store() {
    let fixture = GuardFixture::new().await;
    let source = BackupFixture::start(&fixture).await;
    source.backup_report().await;
    let launch = source.guard.stop().await;
    fs::rename(&source.backup, launch.store()).expect("our own files");
    let before = fs::read(launch.store()).expect("there");
    let output = launch.expect_start_failure().await;
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("is a backup, and no store") && log.contains("guard restore"), "{log}");
    assert_eq!(fs::read(launch.store()).expect("there"), before);
}

/// A guard makes no backup without an admin token to check: a backup has kept answers in it, which no other user of the
/// machine may read.
#[tokio::test]
async fn backup_needs_admin_token() {
    let fixture = GuardFixture::new().await;
    let open = fixture.guard().await;
    let source = BackupFixture::start_launch(fixture.launch().await).await;
    for (admin, more) in [(open.admin, "auth"), (source.guard.admin, "bearer token")] {
        let file = source.backup.display().to_string();
        let admin = admin.to_string();
        let (code, _, log) = run_verb(&["guard", "backup", &file, "--admin", &admin]).await;
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains("FG0602") && log.contains(more), "{log}");
        source.assert_no_leftovers();
    }
}

/// A guard that is killed during a backup leaves no backup, and starts again.
#[tokio::test]
async fn guard_killed_during_backup_leaves_none() {
    let fixture = GuardFixture::new().await;
    let launch = with_short_times(fixture.launch().await);
    let source = BackupFixture::start_launch(launch.failpoint("guard_backs_up", "1*sleep(60000)")).await;
    source.assert_executed(&StampedRequest::new("a", 20), "/pay").await;
    let words = source.backup_arguments();
    let pending = tokio::spawn(async move {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        run_verb(&words).await
    });
    source.guard.wait_at_failpoint("guard_backs_up").await;
    source.assert_executed(&StampedRequest::new("a", 30), "/beside").await;
    let BackupFixture { guard, token, backup } = source;
    let launch = guard.kill().await;
    let (code, _, log) = pending.await.expect("no panic");
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("FG0601"), "{log}");
    let source = BackupFixture { guard: launch.start().await, token, backup };
    source.assert_no_leftovers();
    assert_eq!(source.backup_report().await["highest"], 30);
}

/// A backup on a full disk fails without leaving a file, and the guard continues.
#[tokio::test]
async fn full_disk_leaves_no_backup() {
    let fixture = GuardFixture::new().await;
    let source = BackupFixture::start(&fixture).await;
    for n in 0..60 {
        source.assert_executed(&StampedRequest::new(&format!("k/{n}"), 20).once(n), "/pay").await;
    }
    let fencegate = scratch::binaries().join("fencegate").display().to_string();
    let words = source.backup_arguments().join(" ");
    // The limit of 4 KiB for a file applies to the command only.
    let limited = format!("trap '' XFSZ; ulimit -f 8; exec {fencegate} {words}");
    let output = spawn_blocking(move || std::process::Command::new("sh").args(["-c", &limited]).output());
    let output = output.await.expect("no panic").expect("started");
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("FG0612"), "{log}");
    source.assert_no_leftovers();
    source.assert_executed(&StampedRequest::new("a", 30), "/pay").await;
    assert_eq!(source.backup_report().await["operations"], 60);
}

/// `--offline` copies the store of a stopped guard without starting it, and is refused while the guard runs.
#[tokio::test]
async fn stopped_guard_is_backed_up_offline() {
    let fixture = GuardFixture::new().await;
    let source = BackupFixture::start(&fixture).await;
    source.assert_executed(&StampedRequest::new("a", 20), "/pay").await;
    let file = write_policy(source.guard.launch().home(), &source.guard.launch().file().to_string());
    let file = file.display().to_string();
    let backup = source.backup.display().to_string();
    let offline = ["guard", "backup", &backup, "-c", &file, "--offline", "--format", "json"];
    let (code, _, log) = run_verb(&offline).await;
    assert_eq!(code, Some(1), "its guard runs: {log}");
    source.assert_no_leftovers();
    let launch = source.guard.stop().await;
    let (code, out, log) = run_verb(&offline).await;
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

/// `guard backup` and `guard restore` refuse a store in PostgreSQL, which has tools of its own.
#[tokio::test]
async fn database_store_is_not_backed_up() {
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
        let (code, _, log) = run_verb(words).await;
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains("FG0613"), "{log}");
    }
}
