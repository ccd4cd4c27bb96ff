//! Moves the clocks that one process sees: its wall clock is set, or its machine seems to have slept. Other
//! processes see no change.
//!
//! The process loads a small library before the C library (`LD_PRELOAD`). CLOCK_MONOTONIC does not change: on Linux
//! it stands still while a machine sleeps, and cannot be set.

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

/// The shifts of the clocks of one process. The process reads them from a file that is removed with this value, so
/// the value must outlive the process.
pub struct SteppedClock {
    home: TempDir,
    moved: File,
}

impl SteppedClock {
    /// Makes clocks that show the true time.
    ///
    /// # Panics
    /// If the preloaded library cannot be built. The Debian packages gcc and libc6-dev are needed.
    pub fn start() -> Self {
        let home = scratch::temp_dir();
        let moved = File::create(home.path().join("moved")).expect("a folder of ours");
        let clock = Self { home, moved };
        clock.write(0, 0);
        clock.write(8, 0);
        clock
    }

    /// The first words of a command line that starts a process with these clocks.
    pub fn command(&self) -> Vec<String> {
        let file = self.home.path().join("moved");
        let preloaded = format!("LD_PRELOAD={}", library().display());
        ["env".to_owned(), preloaded, format!("STEPPED_CLOCK={}", file.display())].into()
    }

    /// Sets the wall clock to this number of seconds after the true time, or before it if the number is negative.
    pub fn set_wall(&self, seconds: i64) {
        self.write(0, seconds * 1_000_000_000);
    }

    /// Makes the machine seem to have slept for this time in all.
    ///
    /// # Panics
    /// If the time does not fit into 63 bits of nanoseconds, which are 292 years.
    pub fn add_sleep(&self, time: Duration) {
        self.write(8, i64::try_from(time.as_nanos()).expect("less than centuries"));
    }

    /// Writes eight bytes at a multiple of eight, so the reader sees all of them or none.
    fn write(&self, place: u64, nanos: i64) {
        self.moved.write_all_at(&nanos.to_ne_bytes(), place).expect("a file of ours");
    }
}

/// The preloaded library, built once for all tests of this process.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| ld_preload::build("stepped_clock/clock.c"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The wall clock, boot clock and monotonic clock that another process sees, in seconds.
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

    /// The wall clock and the boot clock move separately, and CLOCK_MONOTONIC does not move.
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
