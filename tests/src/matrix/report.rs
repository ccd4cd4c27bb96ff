//! The report of all runs. It is written after each run, and a resumed run reads it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{
    matrix_case::CaseRun,
    report_page,
    verdict::{RunVerdict, Verdict},
};

/// The verdicts of all runs with one state of the sources.
#[derive(Debug)]
pub struct MatrixReport {
    folder: PathBuf,
    /// The state of the sources.
    state: String,
    pub rulings: Vec<RunVerdict>,
}

impl MatrixReport {
    /// Continues the report in the folder, if it is about the same state of the sources.
    pub fn resume(folder: &Path, state: &str) -> Self {
        let read = || {
            if fs::read_to_string(folder.join(STATE)).ok()? != state {
                return None;
            }
            let report: Value = serde_json::from_str(&fs::read_to_string(folder.join(REPORT)).ok()?).ok()?;
            report.as_array()?.iter().map(RunVerdict::from_json).collect()
        };
        let mut rulings: Vec<RunVerdict> = read().unwrap_or_default();
        // Leave out runs that were skipped, so that they are tried again: there may be time for them now.
        rulings.retain(|ruling| ruling.verdict != Verdict::Skipped);
        Self { folder: folder.to_owned(), state: state.to_owned(), rulings }
    }

    /// Begins a new report.
    pub fn new(folder: &Path, state: &str) -> Self {
        Self { folder: folder.to_owned(), state: state.to_owned(), rulings: Vec::new() }
    }

    pub fn has(&self, run: &CaseRun) -> bool {
        self.rulings.iter().any(|ruling| {
            ruling.case == run.case.name && ruling.level == run.level.name() && ruling.seed == run.seed
        })
    }

    /// Adds the verdict of a run, and writes the whole report.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written.
    pub fn add(&mut self, ruling: RunVerdict) -> io::Result<()> {
        self.rulings.push(ruling);
        fs::create_dir_all(&self.folder)?;
        let report = Value::Array(self.rulings.iter().map(RunVerdict::to_json).collect());
        self.replace(REPORT, &format!("{report:#}\n"))?;
        self.replace("report.html", &report_page::page(&self.rulings))?;
        self.replace(STATE, &self.state)
    }

    /// Replaces a file by a rename, so that an interrupted run leaves the old file or the new one.
    fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let next = self.folder.join(format!("{name}.next"));
        fs::write(&next, text)?;
        fs::rename(next, self.folder.join(name))
    }
}

const REPORT: &str = "report.json";
const STATE: &str = "state";

/// The commit of the sources, and a hash of the changes since.
///
/// # Panics
/// If git is missing.
pub fn state_of_sources(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().expect("git is there");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let commit = git(&["rev-parse", "HEAD"]);
    let changed = git(&["diff", "HEAD"]);
    format!("{commit} {:016x}\n", changed.bytes().fold(0xcbf2_9ce4_8422_2325, fnv))
}

/// One step of FNV-1a, a hash that does not protect against forgery, which is not needed here.
fn fnv(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_testkit::scratch;

    fn ruling(seed: u64, verdict: Verdict) -> RunVerdict {
        RunVerdict {
            case: "kill".into(),
            level: "guard".into(),
            seed,
            executions: 5,
            hand_overs: 4,
            stale: 3,
            hit: 2,
            violations: 1,
            recovery: (seed == 1).then_some(2.5),
            verdict,
            reason: "\"<why>\"".into(),
        }
    }

    /// A resumed report has the verdicts about the same sources except those of skipped runs, and none about other
    /// sources.
    #[test]
    fn resume_keeps_rulings_of_same_sources() {
        let place = scratch::temp_dir();
        let folder = place.path().join("faults");
        let mut report = MatrixReport::resume(&folder, "one");
        let rulings = [(1, Verdict::Pass), (2, Verdict::Fail), (3, Verdict::Skipped)];
        for (seed, verdict) in rulings {
            report.add(ruling(seed, verdict)).expect("written");
        }
        assert_eq!(
            MatrixReport::resume(&folder, "one").rulings,
            [ruling(1, Verdict::Pass), ruling(2, Verdict::Fail)],
            "what was skipped is played"
        );
        assert_eq!(MatrixReport::resume(&folder, "other").rulings, []);
        assert_eq!(MatrixReport::new(&folder, "one").rulings, []);
        let page = fs::read_to_string(folder.join("report.html")).expect("written");
        assert!(page.contains("1 passed, 1 failed, 1 skipped") && page.contains("<svg"), "{page}");
    }
}
