//! `fencegate check`: reports the mistakes in a file, for people or for programs.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use fencegate_policies::{
    diagnose::{Code, Diagnostic, Severity},
    file::{self, FileKind},
};
use fencegate_process::again::{self, CommandTarget};

use super::{
    config,
    exit::{CONFIGURATION, RUNTIME},
    log::Format,
    out::{complain, failed, say},
    policy,
};
use crate::{
    check::{self, CheckOutcome, CheckReport, Depth},
    written::{PolicyFile, ReadPolicyError},
};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The policy of a gateway or the file of a guard; unless given, as for -c.
    #[arg(value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The same, as other verbs take it; unless given, $FENCEGATE_CONFIG, else /etc/fencegate/policy.yaml.
    #[arg(short = 'c', long = "config", value_name = "FILE", conflicts_with = "policy")]
    config: Option<PathBuf>,
    /// Also check what the file names: ZooKeeper, endpoints, guards, certificates, keys. Changes nothing.
    #[arg(long)]
    online: bool,
    /// Treat warnings as errors.
    #[arg(long)]
    strict: bool,
    /// The form of the output; `json` for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(super) fn run(arguments: &CheckArgs) -> Result<(), ExitCode> {
    let named = arguments.policy.as_deref().or(arguments.config.as_deref());
    let path = config::named(named, CommandTarget::Gateway)?;
    let name = path.display().to_string();
    let file = match PolicyFile::open(&path) {
        Ok(file) => file,
        Err(unreadable) => return Err(unread(arguments, &name, &unreadable)),
    };
    if let Some(named) = named {
        let of = match file::kind(&file.text) {
            FileKind::Gateway => CommandTarget::Gateway,
            FileKind::Guard => CommandTarget::Guard,
        };
        again::told(of, [Path::new("-c"), named]);
    }
    let reach = if arguments.online { Depth::Online } else { Depth::File };
    let checked = check::check(&file, reach).map_err(|error| failed(&error))?;
    match arguments.format {
        Format::Json => json(&CheckReport::of(&name, &checked))?,
        Format::Text => text(&name, &file, &checked, arguments.strict)?,
    }
    verdict(&checked.diagnostics, arguments.strict)
}

fn unread(arguments: &CheckArgs, name: &str, unreadable: &ReadPolicyError) -> ExitCode {
    match unreadable {
        ReadPolicyError::InvalidText(diagnostic, _) if arguments.format == Format::Json => {
            let said = [(**diagnostic).clone()];
            json(&CheckReport::about(name, "gateway", &said)).err().unwrap_or(ExitCode::from(CONFIGURATION))
        }
        ReadPolicyError::Io { source, .. } if arguments.format == Format::Json => {
            let said = [Diagnostic::new(Code::NoFile, format!("read {name}: {source}"))
                .remedy("see whether the path is right, and whether this user may read it")];
            json(&CheckReport::about(name, "gateway", &said)).err().unwrap_or(ExitCode::from(RUNTIME))
        }
        _ => policy::unread(unreadable),
    }
}

fn json(report: &CheckReport) -> Result<(), ExitCode> {
    let text = serde_json::to_string_pretty(report).expect("plain fields serialise");
    say(text)
}

fn text(name: &str, file: &PolicyFile, checked: &CheckOutcome, strict: bool) -> Result<(), ExitCode> {
    for diagnostic in &checked.diagnostics {
        complain(file.shown(diagnostic));
    }
    let facts = checked.online.iter().flatten();
    let width = facts.clone().map(|fact| fact.about.chars().count()).max().unwrap_or_default();
    let mut said: String = facts.map(|fact| format!("{:width$}  {}\n", fact.about, fact.says)).collect();
    if verdict(&checked.diagnostics, strict).is_ok() {
        said.push_str(&format!("{name}: good\n"));
    }
    if said.is_empty() { Ok(()) } else { say(said) }
}

fn verdict(diagnostics: &[Diagnostic], strict: bool) -> Result<(), ExitCode> {
    match diagnostics.iter().any(|one| strict || one.severity == Severity::Error) {
        true => Err(ExitCode::from(CONFIGURATION)),
        false => Ok(()),
    }
}
