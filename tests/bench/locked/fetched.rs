//! Packages that Debian does not have. `pip` and `npm` put them into the build folder once.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{result::BenchResult, run::BenchRun};

/// The path of a Python interpreter that has this PyPI package.
pub(super) fn from_pypi(run: &BenchRun, package: &str) -> BenchResult<String> {
    let folder = run.kept_folder("pypi")?;
    let python = folder.join("bin/python").display().to_string();
    fetch_once(&folder, &[package], || {
        command("python3", &["-m", "venv", &folder.display().to_string()])?;
        command(&python, &["-m", "pip", "install", "--quiet", package])
    })?;
    Ok(python)
}

/// A folder in which Node finds these npm packages.
pub(super) fn from_npm(run: &BenchRun, packages: &[&str]) -> BenchResult<PathBuf> {
    let folder = run.kept_folder("npm")?;
    let at = folder.display().to_string();
    let quiet = ["install", "--silent", "--no-audit", "--no-fund", "--prefix", &at];
    fetch_once(&folder, packages, || command("npm", &[&quiet[..], packages].concat()))?;
    Ok(folder)
}

/// Fetches packages into a folder, unless that is complete. The file `made` is written last, so a folder that was
/// left half made is made again.
fn fetch_once(folder: &Path, packages: &[&str], fetch: impl Fn() -> BenchResult<()>) -> BenchResult<()> {
    let made = folder.join("made");
    let names = packages.join("\n");
    if fs::read_to_string(&made).is_ok_and(|there| there == names) {
        return Ok(());
    }
    fetch()?;
    Ok(fs::write(made, names)?)
}

fn command(program: &str, words: &[&str]) -> BenchResult<()> {
    let output = Command::new("timeout").arg("300").arg(program).args(words).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}
