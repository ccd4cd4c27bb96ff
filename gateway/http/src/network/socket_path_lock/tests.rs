//! Which process gets a path, and when its file goes.

use std::os::unix::net::UnixStream;

use tempfile::TempDir;

use super::*;

fn file() -> (TempDir, SocketFile) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("s");
    (folder, SocketFile { path, mode: 0o600 })
}

fn take(file: &SocketFile) -> io::Result<SocketPathLock> {
    SocketPathLock::bind(file, Takeover::Never)
}

/// Makes the file that a killed process leaves.
fn stale(path: &Path) {
    drop(UnixListener::bind(path).expect("bound"));
}

#[test]
fn it_listens_with_its_mode_and_leaves_nothing_behind() {
    let (_folder, file) = file();
    let taken = take(&file).expect("free");
    assert_eq!(fs::metadata(&file.path).expect("there").permissions().mode() & 0o777, 0o600);
    UnixStream::connect(&file.path).expect("somebody listens");
    taken.release();
    assert!(!file.path.exists());
    let next = take(&file).expect("free again");
    drop(taken);
    UnixStream::connect(&file.path).expect("what is left twice is the next one's");
    drop(next);
    assert!(!file.path.exists());
}

#[test]
fn a_path_belongs_to_one_process_and_a_stale_file_to_nobody() {
    let (_folder, file) = file();
    stale(&file.path);
    let taken = take(&file).expect("nobody listens");
    assert_eq!(take(&file).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
    // A process listens and never accepts, and its queue is full.
    let other = SocketFile { path: file.path.with_extension("full"), mode: 0o600 };
    let full = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    full.bind(&SockAddr::unix(&other.path).expect("short")).expect("bound");
    full.listen(0).expect("listens");
    let _waits = UnixStream::connect(&other.path).expect("the first");
    assert_eq!(take(&other).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
    drop(taken);
}

#[test]
fn what_is_no_socket_stays() {
    let (folder, file) = file();
    let target = folder.path().join("target");
    fs::write(&target, "kept").expect("written");
    for takeover in [Takeover::Never, Takeover::FromPredecessor] {
        fs::write(&file.path, "kept").expect("written");
        SocketPathLock::bind(&file, takeover).expect_err("a file");
        assert_eq!(fs::read_to_string(&file.path).expect("still there"), "kept");
        fs::remove_file(&file.path).expect("ours");
        std::os::unix::fs::symlink(&target, &file.path).expect("linked");
        SocketPathLock::bind(&file, takeover).expect_err("a link");
        assert_eq!(fs::read_to_string(&target).expect("still there"), "kept");
        fs::remove_file(&file.path).expect("ours");
        fs::create_dir(&file.path).expect("made");
        SocketPathLock::bind(&file, takeover).expect_err("a folder");
        fs::remove_dir(&file.path).expect("still there");
    }
    let nowhere = SocketFile { path: folder.path().join("none/s"), mode: 0o600 };
    assert!(take(&nowhere).expect_err("no folder").to_string().contains("none"));
}

#[test]
fn one_takes_over_from_another_without_a_moment_in_which_nobody_listens() {
    let (_folder, file) = file();
    let old = take(&file).expect("free");
    let new = SocketPathLock::bind(&file, Takeover::FromPredecessor).expect("taken over");
    let _client = UnixStream::connect(&file.path).expect("somebody listens");
    assert!(new.listener.accept().is_ok(), "the new one");
    assert!(old.listener.accept().is_ok(), "whoever takes over has looked whether somebody listens");
    assert_eq!(old.listener.accept().expect_err("nobody").kind(), io::ErrorKind::WouldBlock);
    old.release();
    UnixStream::connect(&file.path).expect("the file is the new one's");
    assert!(!temporary_path(&file.path).exists());
    drop((old, new));
    assert!(!file.path.exists());
}

#[test]
fn of_many_that_come_at_once_one_gets_a_stale_path() {
    for _ in 0..20 {
        let (_folder, file) = file();
        stale(&file.path);
        let all: Vec<_> = thread::scope(|threads| {
            let each: Vec<_> = (0..8).map(|_| threads.spawn(|| take(&file))).collect();
            each.into_iter().map(|one| one.join().expect("no panic")).collect()
        });
        assert_eq!(all.iter().filter(|taken| taken.is_ok()).count(), 1);
        UnixStream::connect(&file.path).expect("it listens");
    }
}

#[test]
fn a_folder_that_others_keep_locked_is_not_waited_for_without_end() {
    let (folder, file) = file();
    let other = File::open(folder.path()).expect("opened");
    other.lock().expect("locked");
    let told = SocketFolder::open_parent(&file.path).and_then(|folder| folder.lock(LOOK_AGAIN).map(drop));
    assert!(told.expect_err("locked").to_string().contains("locked"));
}
