//! `fencegate init`: prints a starter file, or a policy that is made out of the description of an interface.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use fencegate_policies::diagnostics::{Diagnostic, DiagnosticCode};
use serde_json::json;

use super::{
    exit::RUNTIME,
    log::OutputFormat,
    out::{print_error, print_text, report_error},
    print::{self, StarterPolicy},
};
use crate::openapi::{self, MARK, OpenApiDocument, OpenApiImportCounts, OpenApiPolicyDraft};

#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// The name of the starter. Without it, all starters are listed.
    #[arg(value_enum, conflicts_with = "openapi")]
    starter: Option<StarterPolicy>,
    /// Make a policy out of a description in OpenAPI 3.0 or 3.1, JSON or YAML; `-` for standard input. What the description
    /// does not say is marked in it with DECIDE.
    #[arg(long, value_name = "FILE")]
    openapi: Option<PathBuf>,
    /// The form of the output; `json` for programs: the text of a file within a document, or a list of all starters.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
}

pub(super) fn run(arguments: &InitArgs) -> Result<(), ExitCode> {
    match (&arguments.openapi, arguments.starter, arguments.format) {
        (Some(path), _, format) => import_openapi(path, format),
        (None, starter, OutputFormat::Json) => print_text(print::starters_json(starter)),
        (None, Some(starter), OutputFormat::Text) => print_text(starter.text()),
        (None, None, OutputFormat::Text) => print_text(print::starters()),
    }
}

/// The description could not be read.
#[derive(Debug, thiserror::Error)]
#[error("FG0530: cannot read {name}; see whether the path is right, and whether this user may read it")]
struct ReadOpenApiFileError {
    name: String,
    source: io::Error,
}

fn import_openapi(path: &Path, format: OutputFormat) -> Result<(), ExitCode> {
    let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    let name = path.display().to_string();
    let bytes = read_bounded(path)
        .map_err(|source| report_error(&ReadOpenApiFileError { name: name.clone(), source }))?;
    let refused = |diagnostic: Diagnostic, text: &str| {
        print_error(diagnostic.render(&name, text));
        ExitCode::from(RUNTIME)
    };
    // A file above the size limit was cut, perhaps within a character. Then `import` reports its size, and not its
    // encoding.
    let is_cut = bytes.len() > OpenApiDocument::LARGEST;
    let text = String::from_utf8_lossy(&bytes);
    if !is_cut && std::str::from_utf8(&bytes).is_err() {
        let diagnostic = Diagnostic::new(DiagnosticCode::OpenApiUnreadable, "the file is not UTF-8 text");
        return Err(refused(diagnostic.with_remedy("save the file as UTF-8"), ""));
    }
    let OpenApiPolicyDraft { text: policy, counts } =
        openapi::import(&text).map_err(|diagnostic| refused(diagnostic, &text))?;
    let OpenApiImportCounts { operations, reads, fenced, doubtful, undecided, unfiltered } = counts;
    if format == OutputFormat::Json {
        let counts = json!({
            "operations": operations,
            "without_lock": reads,
            "with_key": fenced,
            "with_key_and_doubt": doubtful,
            "without_route": undecided,
            "unfiltered_keys": unfiltered,
        });
        return print_text(format!("{:#}", json!({ "policy": policy, "counts": counts })));
    }
    print_text(policy)?;
    print_error(format_args!(
        "operations {operations}: without a lock {reads}, with a key {fenced}, with a key and a doubt {doubtful}, without a \
         route {undecided}; keys of any text {unfiltered}; look for {MARK}"
    ));
    Ok(())
}

/// Reads the file, but at most one byte more than the size limit, so that a larger file is noticed.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let most = u64::try_from(OpenApiDocument::LARGEST).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
