//! C libraries that a process loads before all others (`LD_PRELOAD`), and that replace a part of what it sees of the
//! system.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use fencegate_testkit::scratch;

/// Builds `src/SOURCE`, and returns the path of the library. Callers build it once for all tests of a process.
///
/// # Panics
/// If the library cannot be built. The Debian packages gcc and libc6-dev are needed.
pub(crate) fn build(source: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(source);
    let library = scratch::folder().join(source.with_extension("so").file_name().expect("a file"));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).args([&library, &source]);
    let output = compiler.output().expect("cc is needed: apt-get install gcc libc6-dev");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}
