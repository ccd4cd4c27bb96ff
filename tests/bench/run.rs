//! What one run has to itself: a folder that goes with it, and how long it may take.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use indicatif::ProgressBar;

use crate::outcome::Outcome;

pub(crate) struct Run {
    pub(crate) rounds: u32,
    /// Measured in each turn.
    pub(crate) window: Duration,
    /// Turns on stderr while something is measured, where that is a terminal.
    progress: ProgressBar,
    /// `<target>`, where Cargo puts what it builds.
    target: PathBuf,
}

impl Run {
    pub(crate) fn begin(rounds: u32, seconds: u32) -> Outcome<Self> {
        let own = env::current_exe()?;
        let target = own.ancestors().nth(2).ok_or("not started from <target>/<profile>")?.to_owned();
        let progress = ProgressBar::new_spinner().with_message("measuring");
        progress.enable_steady_tick(Duration::from_millis(120));
        let run = Self { rounds, window: Duration::from_secs(seconds.into()), progress, target };
        run.sweep()?;
        fs::create_dir_all(run.folder())?;
        Ok(run)
    }

    /// What was found on the way.
    pub(crate) fn tell(&self, line: &str) {
        self.progress.suspend(|| eprintln!("{line}"));
    }

    /// On a disk, as the target directory is: ZooKeeper's fsync is a part of what is measured.
    pub(crate) fn folder(&self) -> PathBuf {
        self.own().join(format!("run-{}", process::id()))
    }

    pub(crate) fn report(&self) -> PathBuf {
        self.own().join("report.json")
    }

    /// The gateway as it is released.
    pub(crate) fn gateway(&self) -> PathBuf {
        self.target.join("release/fencegate")
    }

    /// The bare proxy, built as the gateway is.
    pub(crate) fn bare(&self) -> PathBuf {
        self.target.join("release/fencegate-bare")
    }

    fn own(&self) -> PathBuf {
        self.target.join("bench")
    }

    /// Removes what killed runs left behind.
    fn sweep(&self) -> io::Result<()> {
        fs::create_dir_all(self.own())?;
        for entry in fs::read_dir(self.own())?.flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix("run-"));
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // What stays is swept by the next run.
        fs::remove_dir_all(self.folder()).ok();
    }
}
