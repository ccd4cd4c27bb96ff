//! The resources of one run: a folder that is removed with it, and its duration.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use indicatif::ProgressBar;

use crate::result::BenchResult;

pub(crate) struct BenchRun {
    pub(crate) rounds: u32,
    /// The time that is measured in each turn.
    pub(crate) window: Duration,
    /// A spinner on stderr during a measurement, if stderr is a terminal.
    progress: ProgressBar,
    /// `<target>`, where Cargo puts what it builds.
    target: PathBuf,
    built: BuildSource,
}

/// The programs that are measured.
enum BuildSource {
    /// Ours as it is shipped; the other programs as Cargo builds a release.
    Released,
    /// Programs from another build, to try the benches out. Their results are never published.
    Given(PathBuf),
}

impl BenchRun {
    /// `given`: a folder of programs that are not the released ones.
    pub(crate) fn begin(rounds: u32, seconds: u32, given: Option<PathBuf>) -> BenchResult<Self> {
        let own = env::current_exe()?;
        let target = own.ancestors().nth(2).ok_or("not started from <target>/<profile>")?.to_owned();
        let progress = ProgressBar::new_spinner().with_message("measuring");
        progress.enable_steady_tick(Duration::from_millis(120));
        let built = given.map_or(BuildSource::Released, BuildSource::Given);
        let run = Self { rounds, window: Duration::from_secs(seconds.into()), progress, target, built };
        run.sweep()?;
        fs::create_dir_all(run.folder())?;
        Ok(run)
    }

    /// Prints an intermediate result.
    pub(crate) fn print(&self, line: &str) {
        self.progress.suspend(|| eprintln!("{line}"));
    }

    /// A folder on a disk, below the target directory. ZooKeeper's fsync is a part of the measurement.
    pub(crate) fn folder(&self) -> PathBuf {
        self.bench_folder().join(format!("run-{}", process::id()))
    }

    /// A folder that outlives the run, so that fetched packages are there the next time.
    pub(crate) fn kept_folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.bench_folder().join(name);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// The path for results. Results of other builds are kept apart.
    pub(crate) fn results(&self, file: &str) -> PathBuf {
        match self.built {
            BuildSource::Released => self.bench_folder().join(file),
            BuildSource::Given(_) => self.bench_folder().join(format!("trial-{file}")),
        }
    }

    /// Whether this run is a trial, of which nothing is published.
    pub(crate) fn is_trial(&self) -> bool {
        matches!(self.built, BuildSource::Given(_))
    }

    /// The binary as it is shipped; `tests/bench/run` has put it there.
    pub(crate) fn gateway(&self) -> PathBuf {
        match &self.built {
            BuildSource::Released => self.bench_folder().join("shipped/fencegate"),
            BuildSource::Given(folder) => folder.join("fencegate"),
        }
    }

    /// The bare proxy.
    pub(crate) fn bare(&self) -> PathBuf {
        self.program("fencegate-bare")
    }

    /// The proxy on Pingora.
    pub(crate) fn pingora(&self) -> PathBuf {
        self.program("fencegate-pingora")
    }

    fn program(&self, name: &str) -> PathBuf {
        match &self.built {
            BuildSource::Released => self.target.join("release").join(name),
            BuildSource::Given(folder) => folder.join(name),
        }
    }

    fn bench_folder(&self) -> PathBuf {
        self.target.join("bench")
    }

    /// Removes the folders that killed runs left behind.
    fn sweep(&self) -> io::Result<()> {
        fs::create_dir_all(self.bench_folder())?;
        for entry in fs::read_dir(self.bench_folder())?.flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix("run-"));
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for BenchRun {
    fn drop(&mut self) {
        // The next run removes the rest.
        fs::remove_dir_all(self.folder()).ok();
    }
}
