//! Reads a policy file, and shows everything that is wrong with it.

use std::{fs, path::Path, process::ExitCode};

use fencegate_policies::{
    diagnose::{Code, Diagnostic, Place},
    file,
    plan::Gateway,
};

use super::{CONFIGURATION, RUNTIME};

/// The plan; else every error is on stderr, and the exit code is returned. Warnings are shown in both cases.
pub(super) fn read(path: &Path) -> Result<Gateway, ExitCode> {
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
    let loaded = file::load(&text);
    for diagnostic in &loaded.diagnostics {
        eprintln!("{}", diagnostic.render(&name, &text));
    }
    loaded.plan.ok_or(ExitCode::from(CONFIGURATION))
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
