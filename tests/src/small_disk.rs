//! A disk that can fill up: a small file system in memory that holds the store of a guard.

use std::{
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    process::Command,
};

use crate::guard::GuardLaunch;

/// A file system mounted over the folder of a store, until the value is dropped.
pub struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// Mounts a file system with a copy of the store on it, and this number of further bytes.
    ///
    /// # Panics
    /// If the mount fails. Only root can mount.
    pub fn mount_below(launch: &GuardLaunch, room: usize) -> Self {
        let store = fs::read(launch.store()).expect("there");
        let at = launch.home().to_owned();
        let size = format!("size={}", store.len() + room);
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at).status();
        assert!(mounted.expect("mount is there").success(), "only root can mount");
        fs::write(launch.store(), store).expect("room for it");
        Self { at }
    }

    /// Fills this number of bytes with another file.
    ///
    /// # Panics
    /// If less space is left.
    pub fn fill(&self, bytes: usize) {
        fs::write(self.ballast(), vec![7; bytes]).expect("room for it");
    }

    /// Fills the disk with another file until no space is left.
    ///
    /// # Panics
    /// If the file cannot be created.
    pub fn fill_up(&self) {
        let mut ballast = File::create(self.ballast()).expect("room for a name");
        while ballast.write_all(&[7; 512]).is_ok() {}
    }

    /// Removes the file of [`Self::fill`] or [`Self::fill_up`].
    ///
    /// # Panics
    /// If there is no such file.
    pub fn free_space(&self) {
        fs::remove_file(self.ballast()).expect("there");
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.at).status());
    }
}
