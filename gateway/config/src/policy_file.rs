//! A policy file on the disk, and the report about its mistakes.

use std::{env, fs, io, path::Path};

use fencegate_policies::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    file::{Environment, LoadedPolicy},
};

use fencegate_process::command_hint::shell_quote;

/// True if this build can send spans. Other builds refuse a policy that requires spans.
const SENDS_SPANS: bool = cfg!(feature = "otlp");

/// The placeholder for the file in the commands of remedies, because the parser of the text does not know the
/// path.
const THE_FILE: &str = "-c FILE";

/// The text of a file.
pub struct PolicyFile {
    /// The name by which the user gave the file.
    name: String,
    pub text: String,
}

/// The reason for which a file has no text.
#[derive(Debug, thiserror::Error)]
pub enum ReadPolicyError {
    #[error("FG0530: cannot read {name}: {source}")]
    Io { name: String, source: io::Error },
    /// The second field is the diagnostic as the user sees it.
    #[error("{1}")]
    InvalidText(Box<Diagnostic>, String),
}

/// The plan, if there is one, and everything to report about the file.
pub struct CheckedPolicy<P> {
    pub plan: Option<P>,
    /// The diagnostics, each with its place and remedy, in the order of the file.
    pub said: Vec<String>,
}

impl PolicyFile {
    /// Reads the file. It is read only once, because it may be a pipe.
    pub fn open(path: &Path) -> Result<Self, ReadPolicyError> {
        let name = path.display().to_string();
        let bytes = fs::read(path).map_err(|source| ReadPolicyError::Io { name: name.clone(), source })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let shown = String::from_utf8_lossy(error.as_bytes());
            let diagnostic = invalid_text_diagnostic(error.utf8_error().valid_up_to(), &shown);
            let rendered = diagnostic.render(&name, &shown);
            ReadPolicyError::InvalidText(Box::new(diagnostic), rendered)
        })?;
        Ok(Self { name, text })
    }

    /// The name by which the user gave the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Loads the policy with the environment of this process.
    pub fn load<P>(&self, load: fn(&str, &Environment) -> LoadedPolicy<P>) -> LoadedPolicy<P> {
        let mut loaded = refuse_missing_features(load(&self.text, &|name| env::var(name).ok()), SENDS_SPANS);
        for remedy in loaded.diagnostics.iter_mut().filter_map(|one| one.remedy.as_mut()) {
            *remedy = remedy.replace(THE_FILE, &format!("-c {}", shell_quote(&self.name)));
        }
        loaded
    }

    pub fn plan<P>(&self, load: fn(&str, &Environment) -> LoadedPolicy<P>) -> CheckedPolicy<P> {
        let loaded = self.load(load);
        let rendered = loaded.diagnostics.iter().map(|diagnostic| self.render(diagnostic));
        CheckedPolicy { said: rendered.collect(), plan: loaded.plan }
    }

    /// Returns the text of a diagnostic for users.
    pub fn render(&self, diagnostic: &Diagnostic) -> String {
        diagnostic.render(&self.name, &self.text)
    }
}

/// Refuses a plan with a feature that this build lacks. If the process started without the feature, users
/// would take it as enabled.
fn refuse_missing_features<P>(mut loaded: LoadedPolicy<P>, sends_spans: bool) -> LoadedPolicy<P> {
    if let (Some(place), false) = (loaded.traces, sends_spans) {
        let remedy = "build with `cargo build --release -p fencegate --features otlp`, or leave `traces` out";
        let none = Diagnostic::new(DiagnosticCode::NoTraces, "this build sends no traces")
            .at(place)
            .with_remedy(remedy);
        loaded.diagnostics.push(none);
        loaded.plan = None;
    }
    loaded
}

/// The diagnostic for a file that is not UTF-8. Its first `valid` bytes are valid, and stand unchanged in
/// `shown`.
fn invalid_text_diagnostic(valid: usize, shown: &str) -> Diagnostic {
    let before = shown.get(..valid).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Diagnostic::new(DiagnosticCode::Syntax, "the file is not UTF-8 text")
        .at(SourceSpan { line, column, width: 1 })
        .with_remedy("save the file as UTF-8")
}

#[cfg(test)]
mod tests {
    use fencegate_policies::file::load;

    use super::*;

    /// A file with traces is refused if the build cannot send them, and no other file is.
    #[test]
    fn traces_require_build_with_exporter() {
        const POLICY: &str = include_str!("../../../policies/examples/minimal.yaml");
        let traced = format!("{POLICY}\nlog: {{traces: {{endpoint: \"http://127.0.0.1:4318\"}}}}\n");
        for (text, sends, plan) in
            [(POLICY, false, true), (POLICY, true, true), (&traced, true, true), (&traced, false, false)]
        {
            let loaded = refuse_missing_features(load(text), sends);
            assert_eq!(loaded.plan.is_some(), plan, "{:?}", loaded.diagnostics);
            let reported = loaded
                .diagnostics
                .iter()
                .any(|one| one.code == DiagnosticCode::NoTraces && one.place.is_some());
            assert_eq!(reported, !plan);
        }
    }
}
