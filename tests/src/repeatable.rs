//! A process whose runs are all the same, as far as the system can make them differ: its random numbers, its clocks, its disk.
//!
//! What is left to differ is threads. A simulation on one thread, in simulated time, repeats itself.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::ld_preload;

/// A command of which each run is the same. It sees clocks that stand.
///
/// # Panics
/// If the library that sees to it cannot be built: the Debian packages gcc and libc6-dev are needed.
pub fn repeatable(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library());
    command
}

/// Built once for all tests of this process.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| ld_preload::build("repeatable/still.c"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two runs draw the same random numbers, and neither observes that time passes.
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
