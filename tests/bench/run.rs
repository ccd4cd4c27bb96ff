//! The resources of one run: its folder, which is removed at the end, its duration, and the measured programs.

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
    /// The duration of each measurement.
    pub(crate) window: Duration,
    /// A spinner on stderr during a measurement, if stderr is a terminal.
    progress: ProgressBar,
    /// The target directory of Cargo.
    target: PathBuf,
    built: BuildSource,
}

/// The origin of the measured programs.
enum BuildSource {
    /// Our program as it is shipped, and the others as Cargo builds them for release.
    Released,
    /// Programs from another build, to try the benches. Their results are never published.
    Given(PathBuf),
}

impl BenchRun {
    /// Begins a run. `given`: a folder of programs to measure in the place of the released ones.
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

    /// The folder of this run, below the target directory: on a disk, because ZooKeeper's fsync is measured, too.
    pub(crate) fn folder(&self) -> PathBuf {
        self.bench_folder().join(format!("run-{}", process::id()))
    }

    /// A folder that is kept after the run, for fetched packages.
    pub(crate) fn kept_folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.bench_folder().join(name);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// The path of a file with results. Those of a trial have other names.
    pub(crate) fn results(&self, file: &str) -> PathBuf {
        match self.built {
            BuildSource::Released => self.bench_folder().join(file),
            BuildSource::Given(_) => self.bench_folder().join(format!("trial-{file}")),
        }
    }

    /// True if this run is a trial, of which nothing is published.
    pub(crate) fn is_trial(&self) -> bool {
        matches!(self.built, BuildSource::Given(_))
    }

    /// The path of our program as it is shipped, which `tests/bench/run` has put there.
    pub(crate) fn gateway(&self) -> PathBuf {
        match &self.built {
            BuildSource::Released => self.bench_folder().join("shipped/fencegate"),
            BuildSource::Given(folder) => folder.join("fencegate"),
        }
    }

    /// The path of the bare proxy.
    pub(crate) fn bare(&self) -> PathBuf {
        self.program("fencegate-bare")
    }

    /// The path of the proxy on Pingora.
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

    /// Removes the folders of earlier runs that were killed.
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
        // A failure is ignored: the next run removes what is left.
        fs::remove_dir_all(self.folder()).ok();
    }
}
