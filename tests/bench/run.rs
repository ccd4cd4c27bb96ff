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
    built: Built,
}

/// The programs that are measured.
enum Built {
    Released,
    /// Some that were built in another way: to try the benches out. What they give is never published.
    Given(PathBuf),
}

impl Run {
    /// `given`: a folder of programs that are not the released ones.
    pub(crate) fn begin(rounds: u32, seconds: u32, given: Option<PathBuf>) -> Outcome<Self> {
        let own = env::current_exe()?;
        let target = own.ancestors().nth(2).ok_or("not started from <target>/<profile>")?.to_owned();
        let progress = ProgressBar::new_spinner().with_message("measuring");
        progress.enable_steady_tick(Duration::from_millis(120));
        let built = given.map_or(Built::Released, Built::Given);
        let run = Self { rounds, window: Duration::from_secs(seconds.into()), progress, target, built };
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

    /// A folder that outlives the run, so that what was fetched is there the next time.
    pub(crate) fn kept(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.own().join(name);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Where what was found is written: that of other programs stands apart.
    pub(crate) fn results(&self, file: &str) -> PathBuf {
        match self.built {
            Built::Released => self.own().join(file),
            Built::Given(_) => self.own().join(format!("trial-{file}")),
        }
    }

    /// Nothing of it is published.
    pub(crate) fn is_trial(&self) -> bool {
        matches!(self.built, Built::Given(_))
    }

    pub(crate) fn gateway(&self) -> PathBuf {
        self.program("fencegate")
    }

    /// The bare proxy, built as the gateway is.
    pub(crate) fn bare(&self) -> PathBuf {
        self.program("fencegate-bare")
    }

    /// The proxy on Pingora, built as the gateway is.
    pub(crate) fn pingora(&self) -> PathBuf {
        self.program("fencegate-pingora")
    }

    fn program(&self, name: &str) -> PathBuf {
        match &self.built {
            Built::Released => self.target.join("release").join(name),
            Built::Given(folder) => folder.join(name),
        }
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
