//! The file of a listening unix socket, which belongs to one process at a time.
//!
//! The file outlives a killed process, so only an attempt to connect shows whether a process listens. All changes of
//! a file are made under a lock on its folder, so if two processes start at once, the later one finds the earlier one
//! listening.

use std::{
    fs::{self, File, Metadata, Permissions},
    io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
    time::Duration,
};

use fencegate_policies::plan::UnixSocketFile;
use socket2::{Domain, SockAddr, Socket, Type};
use tracing::{info, warn};

/// The most connections in the kernel's queue.
pub(crate) const BACKLOG: i32 = 1024;

/// The path at which this process listens. The file is removed by [`BoundUnixSocket::remove_own_socket`] or by the
/// drop.
#[derive(Debug)]
pub(crate) struct BoundUnixSocket {
    path: PathBuf,
    listener: UnixListener,
    /// The inode of the file of this process; `None` once it is removed. No other file gets this number while the
    /// socket is open.
    ours: Mutex<Option<FileId>>,
}

/// The device and inode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId(u64, u64);

/// The result of inspecting a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketPathState {
    Nothing,
    /// A socket without a listener.
    Stale,
    /// A socket with a listener.
    InUse,
}

/// Decides whether this process takes a path at which another process listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketTakeover {
    /// The path is not taken: it belongs to the other process.
    Never,
    /// The path is taken: the other process is about to stop, and new connections come to this one.
    FromPredecessor,
}

impl BoundUnixSocket {
    /// Listens at the path.
    ///
    /// # Errors
    /// Returns an error if another process listens there, or if it cannot be determined whether one does. A file that
    /// is no socket is not replaced.
    pub(crate) fn bind(file: &UnixSocketFile, takeover: SocketTakeover) -> io::Result<Self> {
        let path = &file.path;
        let locked = SocketDirLock::open_parent(path)?.lock(PATIENCE)?;
        let at = match (inspect(path)?, takeover) {
            (SocketPathState::InUse, SocketTakeover::Never) => return Err(io::ErrorKind::AddrInUse.into()),
            // The socket listens under a temporary name first. Its file is then renamed, so that there is always a
            // listener at the path.
            (SocketPathState::InUse, SocketTakeover::FromPredecessor) => temporary_path(path),
            (SocketPathState::Nothing | SocketPathState::Stale, _) => path.clone(),
        };
        if inspect(&at)? == SocketPathState::Stale {
            fs::remove_file(&at)?;
            info!(path = %at.display(), "socket.stale_removed");
        }
        let listener = listen(&at, file.mode)?;
        if at != *path {
            fs::rename(&at, path)?;
        }
        let ours = FileId::from_metadata(&fs::symlink_metadata(path)?);
        drop(locked);
        Ok(Self { path: path.clone(), listener, ours: Mutex::new(Some(ours)) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns another handle of the same listening socket.
    pub(super) fn clone_listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }

    /// Removes the file, if it still belongs to this process. New connections then find no listener, or the process
    /// that has taken over the path.
    pub(crate) fn remove_own_socket(&self) {
        let mut ours = self.ours.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(number) = ours.take() else { return };
        let removed = SocketDirLock::open_parent(&self.path).and_then(|folder| {
            let _locked = folder.lock(PATIENCE_AT_THE_END)?;
            let found = fs::symlink_metadata(&self.path)?;
            if FileId::from_metadata(&found) == number { fs::remove_file(&self.path) } else { Ok(()) }
        });
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // The file stays behind. The next process finds it without a listener, and removes it.
                warn!(path = %self.path.display(), %error, "socket.not_removed");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

impl Drop for BoundUnixSocket {
    fn drop(&mut self) {
        self.remove_own_socket();
    }
}

/// The longest wait for the lock at the start. Gateway processes hold it for a few system calls only.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest wait when the file is removed: it is short, because requests run on the same thread.
const PATIENCE_AT_THE_END: Duration = Duration::from_millis(100);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl FileId {
    fn from_metadata(found: &Metadata) -> Self {
        Self(found.dev(), found.ino())
    }
}

/// The folder of a socket file, which can be locked.
struct SocketDirLock(File, PathBuf);

impl SocketDirLock {
    fn open_parent(path: &Path) -> io::Result<Self> {
        let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let opened = File::open(folder).map_err(|error| {
            io::Error::new(error.kind(), format!("the folder {}: {error}", folder.display()))
        })?;
        Ok(Self(opened, folder.to_owned()))
    }

    /// Locks the folder until the value is dropped. The wait is bounded, because every user who may read a folder can
    /// lock it.
    fn lock(self, patience: Duration) -> io::Result<Self> {
        let mut left = patience;
        loop {
            match self.0.try_lock() {
                Ok(()) => return Ok(self),
                Err(fs::TryLockError::WouldBlock) if left.is_zero() => {
                    let reason = format!("another process keeps the folder {} locked", self.1.display());
                    return Err(io::Error::other(reason));
                }
                Err(fs::TryLockError::WouldBlock) => {
                    thread::sleep(LOOK_AGAIN);
                    left = left.saturating_sub(LOOK_AGAIN);
                }
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

/// The name of the socket during a takeover. [`fencegate_policies`] makes sure that the longer name also fits into a
/// socket address.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Finds out whether a process listens at the path.
///
/// # Errors
/// Returns an error if the file is no socket, or if it cannot be determined whether a process listens.
fn inspect(path: &Path) -> io::Result<SocketPathState> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SocketPathState::Nothing),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "what stands there is no socket"));
        }
        Ok(_) => {}
    }
    let asking = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The connect must not block: a process with a full queue accepts nothing, but still listens.
    asking.set_nonblocking(true)?;
    match asking.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(SocketPathState::InUse),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(SocketPathState::InUse),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(SocketPathState::Stale),
        Err(error) => {
            let reason =
                format!("a socket stands there, and it cannot be told whether somebody listens: {error}");
            Err(io::Error::new(error.kind(), reason))
        }
    }
}

/// Listens at the path. The mode is set before the socket listens, because until then every connection is refused.
fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests;
