//! A folder for one test process, below the target directory; those of processes that are gone are removed.

use std::{env, fs, path::PathBuf, process, sync::LazyLock};

use tempfile::TempDir;

/// The profile's folder in the target directory: where the binaries are.
pub fn binaries() -> PathBuf {
    let own = env::current_exe().expect("a test knows its own path");
    own.ancestors().nth(2).expect("tests run from <target>/<profile>/deps").to_owned()
}

/// A folder of a test's own, which goes with what is returned.
///
/// # Panics
/// If it cannot be made.
pub fn temp_dir() -> TempDir {
    TempDir::new_in(folder()).expect("the target directory can be written")
}

/// This process's own folder. What is kept in it may stay behind until the next run.
pub fn folder() -> PathBuf {
    static OWN: LazyLock<PathBuf> = LazyLock::new(|| {
        let all = binaries().with_file_name("tmp").join("fencegate-tests");
        fs::create_dir_all(&all).expect("the target directory can be written");
        for old in fs::read_dir(&all).expect("just made").flatten() {
            if !PathBuf::from("/proc").join(old.file_name()).exists() {
                // Another process may be sweeping, too.
                drop(fs::remove_dir_all(old.path()));
            }
        }
        let own = all.join(process::id().to_string());
        fs::create_dir_all(&own).expect("the target directory can be written");
        own
    });
    OWN.clone()
}
