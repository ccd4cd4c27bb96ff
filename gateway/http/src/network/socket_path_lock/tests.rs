//! Tests which process gets a path, and when its file is removed.

use std::os::unix::net::UnixStream;

use tempfile::TempDir;

use super::*;

fn file() -> (TempDir, UnixSocketFile) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("s");
    (folder, UnixSocketFile { path, mode: 0o600 })
}

fn take(file: &UnixSocketFile) -> io::Result<BoundUnixSocket> {
    BoundUnixSocket::bind(file, SocketTakeover::Never)
}

/// Makes the file that a killed process leaves.
fn leave_stale_socket(path: &Path) {
    drop(UnixListener::bind(path).expect("bound"));
}

/// The socket file has the configured mode, and is removed when its process releases it.
#[test]
fn listener_has_mode_and_removes_file() {
    let (_folder, file) = file();
    let taken = take(&file).expect("free");
    assert_eq!(fs::metadata(&file.path).expect("there").permissions().mode() & 0o777, 0o600);
    UnixStream::connect(&file.path).expect("somebody listens");
    taken.remove_own_socket();
    assert!(!file.path.exists());
    let next = take(&file).expect("free again");
    drop(taken);
    UnixStream::connect(&file.path).expect("what is left twice is the next one's");
    drop(next);
    assert!(!file.path.exists());
}

/// A path at which a process listens is refused, also when its queue is full; a stale socket file is
/// replaced.
#[test]
fn used_path_is_refused_stale_taken() {
    let (_folder, file) = file();
    leave_stale_socket(&file.path);
    let taken = take(&file).expect("nobody listens");
    assert_eq!(take(&file).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
    // This process listens and never accepts, so its queue is full.
    let other = UnixSocketFile { path: file.path.with_extension("full"), mode: 0o600 };
    let full = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    full.bind(&SockAddr::unix(&other.path).expect("short")).expect("bound");
    full.listen(0).expect("listens");
    let _waits = UnixStream::connect(&other.path).expect("the first");
    assert_eq!(take(&other).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
    drop(taken);
}

/// A file, link or folder at the path is not replaced, not even by a takeover.
#[test]
fn other_files_are_not_replaced() {
    let (folder, file) = file();
    let target = folder.path().join("target");
    fs::write(&target, "kept").expect("written");
    for takeover in [SocketTakeover::Never, SocketTakeover::FromPredecessor] {
        fs::write(&file.path, "kept").expect("written");
        BoundUnixSocket::bind(&file, takeover).expect_err("a file");
        assert_eq!(fs::read_to_string(&file.path).expect("still there"), "kept");
        fs::remove_file(&file.path).expect("ours");
        std::os::unix::fs::symlink(&target, &file.path).expect("linked");
        BoundUnixSocket::bind(&file, takeover).expect_err("a link");
        assert_eq!(fs::read_to_string(&target).expect("still there"), "kept");
        fs::remove_file(&file.path).expect("ours");
        fs::create_dir(&file.path).expect("made");
        BoundUnixSocket::bind(&file, takeover).expect_err("a folder");
        fs::remove_dir(&file.path).expect("still there");
    }
    let nowhere = UnixSocketFile { path: folder.path().join("none/s"), mode: 0o600 };
    assert!(take(&nowhere).expect_err("no folder").to_string().contains("none"));
}

/// A takeover leaves no moment in which the path has no listener.
#[test]
fn takeover_leaves_no_gap() {
    let (_folder, file) = file();
    let old = take(&file).expect("free");
    let new = BoundUnixSocket::bind(&file, SocketTakeover::FromPredecessor).expect("taken over");
    let _client = UnixStream::connect(&file.path).expect("somebody listens");
    assert!(new.listener.accept().is_ok(), "the new one");
    assert!(old.listener.accept().is_ok(), "whoever takes over has looked whether somebody listens");
    assert_eq!(old.listener.accept().expect_err("nobody").kind(), io::ErrorKind::WouldBlock);
    old.remove_own_socket();
    UnixStream::connect(&file.path).expect("the file is the new one's");
    assert!(!temporary_path(&file.path).exists());
    drop((old, new));
    assert!(!file.path.exists());
}

/// Of many processes that bind a stale path at once, exactly one gets it.
#[test]
fn concurrent_binds_give_one_winner() {
    for _ in 0..20 {
        let (_folder, file) = file();
        leave_stale_socket(&file.path);
        let all: Vec<_> = thread::scope(|threads| {
            let each: Vec<_> = (0..8).map(|_| threads.spawn(|| take(&file))).collect();
            each.into_iter().map(|one| one.join().expect("no panic")).collect()
        });
        assert_eq!(all.iter().filter(|taken| taken.is_ok()).count(), 1);
        UnixStream::connect(&file.path).expect("it listens");
    }
}

/// If another process keeps the folder locked, the wait for the lock ends with an error.
#[test]
fn locked_folder_times_out() {
    let (folder, file) = file();
    let other = File::open(folder.path()).expect("opened");
    other.lock().expect("locked");
    let result = SocketDirLock::open_parent(&file.path).and_then(|folder| folder.lock(LOOK_AGAIN).map(drop));
    assert!(result.expect_err("locked").to_string().contains("locked"));
}
