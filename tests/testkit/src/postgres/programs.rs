//! The programs of Debian's package, run as a user that PostgreSQL takes, in a folder that this user may enter.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::{self, Command},
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::child::Signal;

/// `nobody`: the server does not run as root.
const NOBODY: u32 = 65534;

/// In front of the name of every folder.
const PREFIX: &str = "fencegate-postgres-";

/// Where Debian has the newest version of a program.
pub fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("installed by tests/run").flatten();
    let newest = versions.max_by_key(|entry| {
        let version: Option<u32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        version.unwrap_or_default()
    });
    newest.expect("a version").path().join("bin").join(name)
}

/// A folder for a server. The folder of the tests may be closed to other users, and the path of a socket has to be
/// short; so those of processes that are gone are removed here.
pub(super) fn server_folder() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let all = std::env::temp_dir();
    for old in fs::read_dir(&all).expect("a folder").flatten() {
        let name = old.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another process may be sweeping, too.
            drop(fs::remove_dir_all(old.path()));
        }
    }
    let own = all.join(format!("{PREFIX}{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    // Only an earlier process of the same number can have left one.
    drop(fs::remove_dir_all(&own));
    fs::create_dir(&own).expect("a new folder");
    own
}

/// Makes a file or folder that of the user whom the programs run as.
///
/// # Panics
/// If it is not there.
pub fn chown_to_nobody(path: &Path) {
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").expect("proc(5)").uid() == 0
}

/// In front of a program that must not run as root, and has this folder for its own. The signal for our end comes last: a
/// change of user takes it away.
///
/// # Panics
/// If the folder is not there.
pub fn unprivileged(folder: &Path) -> Vec<String> {
    chown_to_nobody(folder);
    let mut words = vec!["env".to_owned(), format!("--chdir={}", folder.display()), "setpriv".to_owned()];
    if is_root() {
        words.extend([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()]);
        words.extend(["--", "setpriv"].map(str::to_owned));
    }
    words.extend(["--pdeathsig", "KILL", "--"].map(str::to_owned));
    words
}

/// Runs a program to its end.
///
/// # Errors
/// The error output of the program, if it fails.
pub(super) fn run(folder: &Path, name: &str, arguments: &[&str]) -> Result<(), String> {
    let front = unprivileged(folder);
    let (first, front) = front.split_first().expect("env");
    let done = Command::new(first).args(front).arg(program(name)).args(arguments).output().expect("env");
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
}

/// With owner and mode, which the server insists on. The folder `to` does not exist yet.
pub(super) fn copy_folder(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").args([from, to]).status().expect("cp");
    assert!(done.success(), "{} to {}", from.display(), to.display());
}

/// To a process that may be gone already.
pub(super) fn signal(pid: u32, signal: Signal) {
    let number = signal.as_raw().to_string();
    drop(Command::new("kill").args(["-s", &number, &pid.to_string()]).output());
}
