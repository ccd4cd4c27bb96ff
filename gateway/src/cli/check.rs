//! `fencegate check`: what is wrong with a file, for people or for programs.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use fencegate_policies::diagnose::{Diagnostic, Severity};

use super::{CONFIGURATION, RUNTIME, log::Format, print, told};
use crate::{
    check::{self, Checked, Reach, Report},
    written::{Unreadable, Written},
};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[arg(value_name = "POLICY", required_unless_present = "config")]
    policy: Option<PathBuf>,
    #[arg(short = 'c', long = "config", value_name = "POLICY", conflicts_with = "policy")]
    config: Option<PathBuf>,
    /// Look also at what the file leads to: ZooKeeper, endpoints, guards, certificates, keys. Changes nothing.
    #[arg(long)]
    online: bool,
    /// Warnings count as errors.
    #[arg(long)]
    strict: bool,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), ExitCode> {
    let path = arguments.policy.as_ref().or(arguments.config.as_ref()).expect("one of the two is required");
    let name = path.display().to_string();
    let file = match Written::open(path) {
        Ok(file) => file,
        Err(unreadable) => return Err(unread(arguments, &name, &unreadable)),
    };
    let reach = if arguments.online { Reach::Online } else { Reach::File };
    let checked = check::check(&file, reach).map_err(|error| told(&error))?;
    match arguments.format {
        Format::Json => json(&Report::of(&name, &checked))?,
        Format::Text => text(&name, &file, &checked, arguments.strict),
    }
    verdict(&checked.diagnostics, arguments.strict)
}

fn unread(arguments: &Arguments, name: &str, unreadable: &Unreadable) -> ExitCode {
    match unreadable {
        Unreadable::Io { .. } => {
            eprintln!("error: {unreadable}");
            ExitCode::from(RUNTIME)
        }
        Unreadable::NotText(diagnostic, _) if arguments.format == Format::Json => {
            let said = [(**diagnostic).clone()];
            json(&Report::about(name, "gateway", &said)).err().unwrap_or(ExitCode::from(CONFIGURATION))
        }
        Unreadable::NotText(..) => {
            eprintln!("{unreadable}");
            ExitCode::from(CONFIGURATION)
        }
    }
}

fn json(report: &Report) -> Result<(), ExitCode> {
    let text = serde_json::to_string_pretty(report).expect("plain fields serialise");
    print::print(format!("{text}\n").as_bytes())
}

fn text(name: &str, file: &Written, checked: &Checked, strict: bool) {
    for diagnostic in &checked.diagnostics {
        eprintln!("{}", file.shown(diagnostic));
    }
    let facts = checked.online.iter().flatten();
    let width = facts.clone().map(|fact| fact.about.chars().count()).max().unwrap_or_default();
    for fact in facts {
        println!("{:width$}  {}", fact.about, fact.says);
    }
    if verdict(&checked.diagnostics, strict).is_ok() {
        println!("{name}: good");
    }
}

fn verdict(diagnostics: &[Diagnostic], strict: bool) -> Result<(), ExitCode> {
    match diagnostics.iter().any(|one| strict || one.severity == Severity::Error) {
        true => Err(ExitCode::from(CONFIGURATION)),
        false => Ok(()),
    }
}
