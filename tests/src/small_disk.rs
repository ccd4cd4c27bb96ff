//! A disk that fills up: a small file system in memory, below the store of a guard.

use std::{
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    process::Command,
};

use crate::guard::GuardLaunch;

/// Over the folder of a store, until it is dropped.
pub struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// With the store on it, and so many bytes beside.
    ///
    /// # Panics
    /// If it cannot be mounted: only root can.
    pub fn mount_below(launch: &GuardLaunch, room: usize) -> Self {
        let store = fs::read(launch.store()).expect("there");
        let at = launch.home().to_owned();
        let size = format!("size={}", store.len() + room);
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at).status();
        assert!(mounted.expect("mount is there").success(), "only root can mount");
        fs::write(launch.store(), store).expect("room for it");
        Self { at }
    }

    /// Fills so much of it with another file.
    ///
    /// # Panics
    /// If less space is left.
    pub fn fill(&self, bytes: usize) {
        fs::write(self.ballast(), vec![7; bytes]).expect("room for it");
    }

    /// Fills it with another file until no space is left.
    ///
    /// # Panics
    /// If something else fails.
    pub fn fill_up(&self) {
        let mut ballast = File::create(self.ballast()).expect("room for a name");
        while ballast.write_all(&[7; 512]).is_ok() {}
    }

    /// What was written so goes.
    ///
    /// # Panics
    /// If nothing was.
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
