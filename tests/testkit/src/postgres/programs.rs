//! Runs the programs of Debian's PostgreSQL package as a user that PostgreSQL accepts, in a folder that this user
//! may enter.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::{self, Command},
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::child::Signal;

/// The user id of `nobody`: PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;

/// The names of the folders of all servers begin with this.
const PREFIX: &str = "fencegate-postgres-";

/// The path of a program in the newest version that Debian has installed.
pub fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("installed by tests/run").flatten();
    let newest = versions.max_by_key(|entry| {
        let version: Option<u32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        version.unwrap_or_default()
    });
    newest.expect("a version").path().join("bin").join(name)
}

/// Makes a folder for a server, in the system's folder for temporary files: the tests' own folder may be closed to
/// other users, and the path of a socket has to be short. Removes the folders of processes that have ended.
pub(super) fn server_folder() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let all = std::env::temp_dir();
    for old in fs::read_dir(&all).expect("a folder").flatten() {
        let name = old.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // The removal may fail, because another process may remove the same folder.
            drop(fs::remove_dir_all(old.path()));
        }
    }
    let own = all.join(format!("{PREFIX}{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    // A folder of this name can only be left from an earlier process with the same process id.
    drop(fs::remove_dir_all(&own));
    fs::create_dir(&own).expect("a new folder");
    own
}

/// Makes the user of the servers the owner of a file or folder, if this process is root.
///
/// # Panics
/// If the file does not exist.
pub fn chown_to_nobody(path: &Path) {
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").expect("proc(5)").uid() == 0
}

/// The words of a command line before a program that must not run as root. The program owns `folder` and runs in it.
/// The parent-death signal is set last, because a change of user clears it.
///
/// # Panics
/// If the folder does not exist.
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

/// Runs a program of PostgreSQL to its end.
///
/// # Errors
/// Returns the error output of the program if it fails.
pub(super) fn run(folder: &Path, name: &str, arguments: &[&str]) -> Result<(), String> {
    let front = unprivileged(folder);
    let (first, front) = front.split_first().expect("env");
    let done = Command::new(first).args(front).arg(program(name)).args(arguments).output().expect("env");
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
}

/// Copies a folder with owner and mode, because the server checks both. The folder `to` must not exist yet.
pub(super) fn copy_folder(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").args([from, to]).status().expect("cp");
    assert!(done.success(), "{} to {}", from.display(), to.display());
}

/// Sends a signal to a process that may have ended already.
pub(super) fn signal(pid: u32, signal: Signal) {
    let number = signal.as_raw().to_string();
    drop(Command::new("kill").args(["-s", &number, &pid.to_string()]).output());
}
