//! Folders for tests below the target directory. The folders of processes that have ended are removed.

use std::{env, fs, path::PathBuf, process, sync::LazyLock};

use tempfile::TempDir;

/// The folder of the build profile in the target directory, which has the binaries.
pub fn binaries() -> PathBuf {
    let own = env::current_exe().expect("a test knows its own path");
    own.ancestors().nth(2).expect("tests run from <target>/<profile>/deps").to_owned()
}

/// Makes a folder that is removed when the returned value is dropped.
///
/// # Panics
/// If the folder cannot be made.
pub fn temp_dir() -> TempDir {
    TempDir::new_in(folder()).expect("the target directory can be written")
}

/// This process's own folder. Files in it may stay until the next run of tests.
pub fn folder() -> PathBuf {
    static OWN: LazyLock<PathBuf> = LazyLock::new(|| {
        let all = binaries().with_file_name("tmp").join("fencegate-tests");
        fs::create_dir_all(&all).expect("the target directory can be written");
        for old in fs::read_dir(&all).expect("just made").flatten() {
            if !PathBuf::from("/proc").join(old.file_name()).exists() {
                // The removal may fail, because another process may remove the same folder.
                drop(fs::remove_dir_all(old.path()));
            }
        }
        let own = all.join(process::id().to_string());
        fs::create_dir_all(&own).expect("the target directory can be written");
        own
    });
    OWN.clone()
}
