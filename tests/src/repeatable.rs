//! A process whose runs all see the same random numbers, clocks and disk.
//!
//! Only threads can still make two runs differ. A simulation on one thread, in simulated time, repeats itself
//! exactly.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::ld_preload;

/// A command whose runs are all the same. Its process sees clocks that stand still.
///
/// # Panics
/// If the preloaded library cannot be built. The Debian packages gcc and libc6-dev are needed.
pub fn repeatable(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library());
    command
}

/// The preloaded library, built once for all tests of this process.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| ld_preload::build("repeatable/still.c"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two runs draw the same random numbers, and see the same time.
    #[test]
    fn runs_repeat_random_numbers_and_time() {
        let script = "import os, time; began = time.monotonic(); sum(range(1000000)); \
            print(os.urandom(8).hex(), hash('a'), time.time(), time.monotonic() - began)";
        let run = || {
            let output = repeatable(Path::new("python3")).args(["-c", script]).output().expect("python3");
            String::from_utf8(output.stdout).expect("text")
        };
        let one = run();
        let other = run();
        assert!(one.trim_end().ends_with(" 0.0"), "{one}");
        assert_eq!(one, other);
    }
}
