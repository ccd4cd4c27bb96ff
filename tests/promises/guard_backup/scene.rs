//! A guard that is backed up, and the machine on which its store is restored.

use std::{
    fs,
    path::{Path, PathBuf},
};

use fencegate_tests::{
    gateway::{command, write_policy},
    guard::{Guard, GuardFixture, GuardLaunch, StampedRequest},
    guarded::with_short_times,
};
use serde_json::Value;

/// The exit code, stdout and stderr of a command.
pub(super) type CommandOutput = (Option<i32>, String, String);

pub(super) async fn run_verb(arguments: &[&str]) -> CommandOutput {
    let output = command(arguments).await.expect("started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A guard whose admin listener requires a token, with that token and the path of the backup.
pub(super) struct BackupFixture {
    pub(super) guard: Guard,
    pub(super) token: String,
    pub(super) backup: PathBuf,
}

impl BackupFixture {
    pub(super) async fn start(fixture: &GuardFixture) -> Self {
        Self::start_launch(with_short_times(fixture.launch().await)).await
    }

    pub(super) async fn start_launch(launch: GuardLaunch) -> Self {
        let launch = launch.with_admin_token();
        let guard = launch.start().await;
        let token = launch.token_file().display().to_string();
        Self { guard, token, backup: launch.home().join("night.backup") }
    }

    pub(super) fn backup_arguments(&self) -> Vec<String> {
        let file = self.backup.display().to_string();
        let admin = self.guard.admin.to_string();
        ["guard", "backup", &file, "--admin", &admin, "--token-file", &self.token].map(str::to_owned).into()
    }

    pub(super) async fn run_backup(&self, more: &[&str]) -> CommandOutput {
        let words = self.backup_arguments();
        let words: Vec<&str> = words.iter().map(String::as_str).chain(more.iter().copied()).collect();
        run_verb(&words).await
    }

    /// Makes a backup, and returns the report of the command.
    pub(super) async fn backup_report(&self) -> Value {
        let (code, out, log) = self.run_backup(&["--format", "json"]).await;
        assert_eq!(code, Some(0), "{log}");
        serde_json::from_str(&out).expect("JSON")
    }

    /// Asserts that the folder of the guard has no file of a backup.
    pub(super) fn assert_no_leftovers(&self) {
        let left: Vec<String> = names(self.guard.launch().home());
        let backups: Vec<&String> = left.iter().filter(|name| name.contains("backup")).collect();
        assert!(backups.is_empty(), "{backups:?}");
    }

    pub(super) async fn assert_executed(&self, dispatch: &StampedRequest, path: &str) {
        assert_eq!(self.guard.send(&dispatch.post(path)).await.status, 200);
    }
}

pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect()
}

/// Another machine, which has the policy of the guard and no store.
pub(super) struct RestoreTarget {
    pub(super) launch: GuardLaunch,
    pub(super) file: PathBuf,
    pub(super) backup: PathBuf,
}

impl RestoreTarget {
    /// The machine on which the store of this guard was lost.
    pub(super) fn after_store_loss(launch: GuardLaunch, backup: &Path) -> Self {
        fs::remove_file(launch.store()).expect("it was there");
        Self::new(launch, backup)
    }

    pub(super) fn new(launch: GuardLaunch, backup: &Path) -> Self {
        let file = write_policy(launch.home(), &launch.file().to_string());
        Self { launch, file, backup: backup.to_owned() }
    }

    pub(super) async fn run_restore(&self, more: &[&str]) -> CommandOutput {
        let backup = self.backup.display().to_string();
        let file = self.file.display().to_string();
        run_verb(&[&["guard", "restore", &backup, "-c", &file], more].concat()).await
    }

    pub(super) async fn assert_restore_refused(&self, more: &[&str], code: &str) {
        let before = fs::read(self.launch.store()).ok();
        let (exit, _, log) = self.run_restore(more).await;
        assert_eq!(exit, Some(1), "{log}");
        assert!(log.contains(code), "{code} is not in\n{log}");
        assert_eq!(fs::read(self.launch.store()).ok(), before, "the store has changed");
        let half = names(self.launch.home()).into_iter().find(|name| name.contains("restoring"));
        assert_eq!(half, None);
    }

    pub(super) async fn restore_report(&self, more: &[&str]) -> Value {
        let (code, out, log) = self.run_restore(&[&["--format", "json"], more].concat()).await;
        assert_eq!(code, Some(0), "{log}");
        serde_json::from_str(&out).expect("JSON")
    }
}
