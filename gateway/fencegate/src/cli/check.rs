//! `fencegate check`: reports the mistakes in a file, for people or for programs.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use fencegate_check as check;
use fencegate_check::{CheckDepth, PolicyCheckOutcome, PolicyCheckReport, explain::RequestExplanation};
use fencegate_config::policy_file::{PolicyFile, ReadPolicyError};
use fencegate_policies::{
    diagnostics::{Diagnostic, DiagnosticCode, Severity},
    file::{self, PolicyProcessKind},
};
use fencegate_process::command_hint::{self, CommandHintTarget};

use super::{
    config,
    exit::{CONFIGURATION, RUNTIME, USAGE},
    log::OutputFormat,
    out::{print_error, print_text, report_error},
    policy,
    sample_args::SampleArgs,
};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The policy of a gateway or the file of a guard, `-` for standard input; unless given, as for -c.
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
    /// Show hints as well: what is no mistake, and may be better.
    #[arg(long)]
    hints: bool,
    /// A request, such as 'POST /v1/orders/42/capture': also show what the file would do with it.
    #[arg(long, value_name = "REQUEST")]
    request: Option<String>,
    #[command(flatten)]
    sample: SampleArgs,
    /// The form of the output; `json` for programs.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
}

pub(super) fn run(arguments: &CheckArgs) -> Result<(), ExitCode> {
    let named = arguments.policy.as_deref().or(arguments.config.as_deref());
    let named = named.map(|named| if named == Path::new("-") { Path::new("/dev/stdin") } else { named });
    let path = config::resolve_file_without_hint(named, CommandHintTarget::Gateway)?;
    let name = path.display().to_string();
    let file = match PolicyFile::open(&path) {
        Ok(file) => file,
        Err(unreadable) => return Err(report_unreadable(arguments, &name, &unreadable)),
    };
    if let Some(named) = named {
        let of = match file::detect_file_kind(&file.text) {
            PolicyProcessKind::Gateway => CommandHintTarget::Gateway,
            PolicyProcessKind::Guard => CommandHintTarget::Guard,
        };
        command_hint::set_command_arguments(of, [Path::new("-c"), named]);
    }
    let explained = explain_request(&file, arguments)?;
    let reach = if arguments.online { CheckDepth::Online } else { CheckDepth::File };
    let checked = check::check(&file, reach).map_err(|error| report_error(&error))?;
    match arguments.format {
        OutputFormat::Json => {
            let report = PolicyCheckReport::new(&name, &checked);
            print_json(&PolicyCheckReport { request: explained.as_ref(), ..report })?
        }
        OutputFormat::Text => print_diagnostics(&name, &file, &checked, explained.as_ref(), arguments)?,
    }
    exit_result(&checked.diagnostics, arguments.strict)
}

/// Explains the request that was asked about. `None` if there is no such request, or if the file has errors.
fn explain_request(file: &PolicyFile, arguments: &CheckArgs) -> Result<Option<RequestExplanation>, ExitCode> {
    let usage = |why: &str| {
        print_error(format_args!("error: {why}"));
        Err(ExitCode::from(USAGE))
    };
    let Some(line) = &arguments.request else {
        return match arguments.sample.is_present() {
            true => {
                usage("a request is described, and none is named: write `--request 'POST /v1/orders/42'`")
            }
            false => Ok(None),
        };
    };
    if file::detect_file_kind(&file.text) == PolicyProcessKind::Guard {
        return usage("`--request` needs the policy of a gateway: a guard has no routes");
    }
    let plan = file.load(file::load_with_environment).plan;
    plan.map(|plan| arguments.sample.explain(&plan, line)).transpose()
}

fn report_unreadable(arguments: &CheckArgs, name: &str, unreadable: &ReadPolicyError) -> ExitCode {
    match unreadable {
        ReadPolicyError::InvalidText(diagnostic, _) if arguments.format == OutputFormat::Json => {
            let diagnostics = [(**diagnostic).clone()];
            print_json(&PolicyCheckReport::for_unreadable(name, "gateway", &diagnostics))
                .err()
                .unwrap_or(ExitCode::from(CONFIGURATION))
        }
        ReadPolicyError::Io { source, .. } if arguments.format == OutputFormat::Json => {
            let diagnostics =
                [Diagnostic::new(DiagnosticCode::NoFile, format!("cannot read {name}: {source}"))
                    .with_remedy("see whether the path is right, and whether this user may read it")];
            print_json(&PolicyCheckReport::for_unreadable(name, "gateway", &diagnostics))
                .err()
                .unwrap_or(ExitCode::from(RUNTIME))
        }
        _ => policy::report_unreadable(unreadable),
    }
}

fn print_json(report: &PolicyCheckReport) -> Result<(), ExitCode> {
    let text = serde_json::to_string_pretty(report).expect("plain fields serialise");
    print_text(text)
}

fn print_diagnostics(
    name: &str,
    file: &PolicyFile,
    checked: &PolicyCheckOutcome,
    explained: Option<&RequestExplanation>,
    arguments: &CheckArgs,
) -> Result<(), ExitCode> {
    let hints = checked.hints.iter().filter(|_| arguments.hints);
    for diagnostic in checked.diagnostics.iter().chain(hints) {
        print_error(file.render(diagnostic));
    }
    let facts = checked.online.iter().flatten();
    let width = facts.clone().map(|fact| fact.about.chars().count()).max().unwrap_or_default();
    let mut text: String = facts.map(|fact| format!("{:width$}  {}\n", fact.about, fact.says)).collect();
    text.extend(explained.map(ToString::to_string));
    if exit_result(&checked.diagnostics, arguments.strict).is_ok() {
        text.push_str(&format!("{name}: good\n"));
    }
    if text.is_empty() { Ok(()) } else { print_text(text) }
}

fn exit_result(diagnostics: &[Diagnostic], strict: bool) -> Result<(), ExitCode> {
    match diagnostics.iter().any(|one| strict || one.severity == Severity::Error) {
        true => Err(ExitCode::from(CONFIGURATION)),
        false => Ok(()),
    }
}
