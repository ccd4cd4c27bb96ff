//! Reads a policy file, and shows everything that is wrong with it.

use std::{fs, path::Path, process::ExitCode};

use fencegate_policies::{file, plan::Plan};

use super::{CONFIGURATION, RUNTIME};

/// The plan; else every error is on stderr, and the exit code is returned. Warnings are shown in both cases.
pub(super) fn read(path: &Path) -> Result<Plan, ExitCode> {
    let name = path.display().to_string();
    let text = fs::read(path).map_err(|error| {
        eprintln!("error: read {name}: {error}");
        ExitCode::from(RUNTIME)
    })?;
    let Ok(text) = String::from_utf8(text) else {
        eprintln!("error: {name} is not UTF-8 text");
        return Err(ExitCode::from(CONFIGURATION));
    };
    let loaded = file::load(&text);
    for diagnostic in &loaded.diagnostics {
        eprintln!("{}", diagnostic.render(&name, &text));
    }
    loaded.plan.ok_or(ExitCode::from(CONFIGURATION))
}
