//! Runs other programs in the folder of the sources.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a command that must succeed, and returns its output.
pub(super) fn run(program: &str, arguments: &[&str]) -> String {
    let said = Command::new(program).args(arguments).current_dir(root()).output();
    let said = said.unwrap_or_else(|error| panic!("{program}: {error}"));
    let [out, err] = [said.stdout, said.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(said.status.success(), "{program} {arguments:?}: {}\n{out}\n{err}", said.status);
    out
}

pub(super) fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
