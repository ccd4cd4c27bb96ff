//! The clocks that one process sees: its wall clock is set, or its machine has slept, and no other process notices.
//!
//! A small library is loaded before the C library into that process (`LD_PRELOAD`). CLOCK_MONOTONIC stays as it is: it
//! stands still while a machine sleeps, and cannot be set.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use fencegate_testkit::scratch;
use tempfile::TempDir;

use crate::ld_preload;

/// By how much the clocks of one process are off. Its file goes with it, so it has to outlive the process.
pub struct SteppedClock {
    home: TempDir,
    moved: File,
}

impl SteppedClock {
    /// They go right yet.
    ///
    /// # Panics
    /// If the library cannot be built: the Debian packages gcc and libc6-dev are needed.
    pub fn start() -> Self {
        let home = scratch::temp_dir();
        let moved = File::create(home.path().join("moved")).expect("a folder of ours");
        let clock = Self { home, moved };
        clock.write(0, 0);
        clock.write(8, 0);
        clock
    }

    /// The command that starts another one with these clocks.
    pub fn command(&self) -> Vec<String> {
        let file = self.home.path().join("moved");
        let preloaded = format!("LD_PRELOAD={}", library().display());
        ["env".to_owned(), preloaded, format!("STEPPED_CLOCK={}", file.display())].into()
    }

    /// The wall clock is set: so many seconds from the true time, before it if negative.
    pub fn set_wall(&self, seconds: i64) {
        self.write(0, seconds * 1_000_000_000);
    }

    /// The machine has slept for so long in all.
    ///
    /// # Panics
    /// If it are centuries.
    pub fn add_sleep(&self, time: Duration) {
        self.write(8, i64::try_from(time.as_nanos()).expect("less than centuries"));
    }

    /// Eight bytes at a place that is a multiple of eight: the reader sees all of them or none.
    fn write(&self, place: u64, nanos: i64) {
        self.moved.write_all_at(&nanos.to_ne_bytes(), place).expect("a file of ours");
    }
}

/// Built once for all tests of this process.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| ld_preload::build("stepped_clock/clock.c"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Wall clock, boot clock and monotonic clock as another process sees them, in seconds.
    fn observed_clocks(clock: &SteppedClock) -> [f64; 3] {
        let script =
            "import time; print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic())";
        let command = clock.command();
        let python = ["python3", "-c", script];
        let output = Command::new(&command[0]).args(&command[1..]).args(python).output().expect("env");
        let said = String::from_utf8(output.stdout).expect("text");
        let numbers: Vec<f64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        numbers.try_into().expect("three")
    }

    /// The wall clock and the boot clock are moved separately, and CLOCK_MONOTONIC is not moved.
    #[test]
    fn wall_and_boot_clock_move_separately() {
        let clock = SteppedClock::start();
        let before = observed_clocks(&clock);
        clock.set_wall(-3600);
        clock.add_sleep(Duration::from_millis(60_500));
        let after = observed_clocks(&clock);
        for (moved, by) in [0, 1, 2].map(|at| after[at] - before[at]).into_iter().zip([-3600.0, 60.5, 0.0]) {
            assert!((by..by + 20.0).contains(&moved), "{moved} instead of {by}: {before:?} {after:?}");
        }
    }
}
