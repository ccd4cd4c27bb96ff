//! The file of a listening unix socket, which one process has at a time.
//!
//! The file outlives a killed process, so only an attempt to connect shows whether a process listens. All changes of
//! a file are made under the lock of its folder, so if two processes start at once, the later one finds the earlier
//! one listening.

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

/// A path at which this process listens, until [`BoundUnixSocket::remove_own_socket`] or its drop.
#[derive(Debug)]
pub(crate) struct BoundUnixSocket {
    path: PathBuf,
    listener: UnixListener,
    /// The inode of our file, until it is removed. No other file gets this number while the socket is open.
    ours: Mutex<Option<FileId>>,
}

/// The device and inode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId(u64, u64);

/// The state of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketPathState {
    Nothing,
    /// A socket without a listener.
    Stale,
    /// A socket with a listener.
    InUse,
}

/// Whether to take a path at which another process listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketTakeover {
    /// No: the path belongs to another process.
    Never,
    /// Yes: that process is about to stop, and new connections come to this one.
    FromPredecessor,
}

impl BoundUnixSocket {
    /// Listens at the path.
    ///
    /// # Errors
    /// Another process listens there, or it cannot be determined whether one does. A file that is no socket is left
    /// alone.
    pub(crate) fn bind(file: &UnixSocketFile, takeover: SocketTakeover) -> io::Result<Self> {
        let path = &file.path;
        let locked = SocketDirLock::open_parent(path)?.lock(PATIENCE)?;
        let at = match (inspect(path)?, takeover) {
            (SocketPathState::InUse, SocketTakeover::Never) => return Err(io::ErrorKind::AddrInUse.into()),
            // Listen at another name first, and then rename the file, so that there is always a listener.
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

    /// Another handle of the same socket.
    pub(super) fn clone_listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }

    /// Removes the file, if it is still ours. New connections then find no listener, or the process that has taken
    /// over.
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
                // The next process finds the file without a listener, and removes it.
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

/// How long to wait for the lock, which gateway processes hold for a few system calls only.
const PATIENCE: Duration = Duration::from_secs(2);
/// At the end the wait is short, because requests run on the same thread.
const PATIENCE_AT_THE_END: Duration = Duration::from_millis(100);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl FileId {
    fn from_metadata(found: &Metadata) -> Self {
        Self(found.dev(), found.ino())
    }
}

/// The folder of the file.
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

/// The temporary name while two processes listen. [`fencegate_policies`] reserves space for it in the kernel's
/// address.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// # Errors
/// The file is no socket, or it cannot be determined whether a process listens.
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
    // A process that accepts nothing still listens, and must not block this one.
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

/// The mode is set before the socket listens, because until then every connection is refused.
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
