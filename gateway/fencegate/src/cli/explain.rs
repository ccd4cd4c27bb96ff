//! `fencegate explain`: what happens to a request, or what a code means.

use std::process::ExitCode;

use clap::Args;
use fencegate_check::explain::RequestExplanation;
use fencegate_policies::diagnostics::DiagnosticCode;
use fencegate_process::command_hint::CommandHintTarget;

use super::{
    config::{self, ConfigArgs},
    exit::USAGE,
    log::OutputFormat,
    out::print_error,
    policy,
    sample_args::SampleArgs,
};

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// A request, such as POST /v1/orders/42/capture, or a code, such as FG0203.
    #[arg(value_name = "REQUEST|CODE", required = true, num_args = 1..=2)]
    about: Vec<String>,
    /// The policy that decides. A code needs none.
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    sample: SampleArgs,
    /// The form of the output; `json` for programs.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
}

/// Runs the verb and returns the text to print.
pub(super) fn run(explain: &ExplainArgs) -> Result<String, ExitCode> {
    let about = explain.about.join(" ");
    if let Some(code) = DiagnosticCode::parse(&about) {
        return Ok(describe_code(code));
    }
    if is_diagnostic_code(&about) {
        print_error(format_args!(
            "error: `{about}` is no code; FG and four digits are, as messages print them"
        ));
        return Err(ExitCode::from(USAGE));
    }
    let gateway = policy::read_gateway(&config::resolve_file(
        explain.config.config.as_deref(),
        CommandHintTarget::Gateway,
    )?)?;
    Ok(render(&explain.sample.explain(&gateway, &about)?, explain.format))
}

/// A code ends in digits; a request has a path.
fn is_diagnostic_code(about: &str) -> bool {
    let number = about.get(..2).filter(|begin| begin.eq_ignore_ascii_case("FG")).map(|_| &about[2..]);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn render(explained: &RequestExplanation, format: OutputFormat) -> String {
    match format {
        OutputFormat::Text => explained.to_string().trim_end().to_owned(),
        OutputFormat::Json => serde_json::to_string_pretty(explained).expect("plain fields serialise"),
    }
}

fn describe_code(code: DiagnosticCode) -> String {
    let starter = code.example().map(|example| example.starter);
    let starter = starter.map(|starter| format!("\n\nThe rest is as `fencegate init {starter}` prints it."));
    let starter = starter.unwrap_or_default();
    format!("{code}: {}\n\n{}{starter}", code.meaning(), code.explanation())
}
