//! Reads the policy of a gateway or the file of a guard, and shows everything that is wrong with it.

use std::{fs, path::Path, process::ExitCode};

use fencegate_policies::{
    diagnose::{Code, Diagnostic, Place},
    file::{self, Kind, Loaded},
    plan::{Gateway, Guard},
};

use super::{CONFIGURATION, RUNTIME};

/// The plan; else every error is on stderr, and the exit code is returned. Warnings are shown in both cases.
pub(super) fn read(path: &Path) -> Result<Gateway, ExitCode> {
    File::open(path)?.plan(file::load)
}

/// As [`read`], for a guard.
pub(super) fn read_guard(path: &Path) -> Result<Guard, ExitCode> {
    File::open(path)?.plan(file::load_guard)
}

/// As [`read`], for a file of either kind.
pub(super) fn check(path: &Path) -> Result<(), ExitCode> {
    // Once only: it may be a pipe.
    let file = File::open(path)?;
    match file::kind(&file.text) {
        Kind::Gateway => file.plan(file::load).map(drop),
        Kind::Guard => file.plan(file::load_guard).map(drop),
    }
}

struct File {
    name: String,
    text: String,
}

impl File {
    fn open(path: &Path) -> Result<Self, ExitCode> {
        let name = path.display().to_string();
        let text = fs::read(path).map_err(|error| {
            eprintln!("error: read {name}: {error}");
            ExitCode::from(RUNTIME)
        })?;
        let text = String::from_utf8(text).map_err(|error| {
            let shown = String::from_utf8_lossy(error.as_bytes());
            eprintln!("{}", not_text(error.utf8_error().valid_up_to(), &shown).render(&name, &shown));
            ExitCode::from(CONFIGURATION)
        })?;
        Ok(Self { name, text })
    }

    fn plan<P>(&self, load: fn(&str) -> Loaded<P>) -> Result<P, ExitCode> {
        let loaded = load(&self.text);
        for diagnostic in &loaded.diagnostics {
            eprintln!("{}", diagnostic.render(&self.name, &self.text));
        }
        loaded.plan.ok_or(ExitCode::from(CONFIGURATION))
    }
}

/// `valid`: the bytes that are text; so many stand unchanged in `shown`.
fn not_text(valid: usize, shown: &str) -> Diagnostic {
    let before = shown.get(..valid).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Diagnostic::new(Code::Syntax, "the file is not UTF-8 text")
        .at(Place { line, column, width: 1 })
        .remedy("save the file as UTF-8")
}
