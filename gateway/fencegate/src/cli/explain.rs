//! `fencegate explain`: what happens to a request, or what a code means.

use std::{fs, io, process::ExitCode};

use bytes::Bytes;
use clap::Args;
use fencegate_check::explain::{self, ParseSampleRequestError, RequestExplanation, SampleRequest};
use fencegate_policies::diagnostics::DiagnosticCode;
use fencegate_process::command_hint::CommandHintTarget;

use super::{
    config::{self, ConfigArgs},
    exit::USAGE,
    log::OutputFormat,
    out::{print_error, report_error},
    policy,
};

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// A request, such as POST /v1/orders/42/capture, or a code, such as FG0203.
    #[arg(value_name = "REQUEST|CODE", required = true, num_args = 1..=2)]
    about: Vec<String>,
    /// The policy that decides. A code needs none.
    #[command(flatten)]
    config: ConfigArgs,
    /// A header field of the request; may be given several times.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    fields: Vec<String>,
    /// The body of the request; `@FILE` reads it from there.
    #[arg(short = 'd', long = "data", value_name = "BODY|@FILE")]
    body: Option<String>,
    /// The host that the client asks for. Default: the address of the listener.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// The name in a certificate that the client has shown and the listener has verified.
    #[arg(long, value_name = "NAME")]
    client_name: Option<String>,
    /// The claims of a bearer token that the client has sent and the gateway has verified.
    #[arg(long, value_name = "JSON")]
    claims: Option<String>,
    /// The form of the output; `json` for programs.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
}

/// The reason for which nothing could be explained.
#[derive(Debug, thiserror::Error)]
enum ExplainError {
    #[error(transparent)]
    Sample(#[from] ParseSampleRequestError),
    #[error("read the body")]
    Body(#[source] io::Error),
    #[error("start a runtime")]
    Runtime(#[source] io::Error),
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
    let usage = |error: ExplainError| {
        report_error(&error);
        ExitCode::from(USAGE)
    };
    let gateway = policy::read_gateway(&config::resolve_file(
        explain.config.config.as_deref(),
        CommandHintTarget::Gateway,
    )?)?;
    let default = explain::default_host(&gateway.serving.listener.address);
    let host = explain.host.as_deref().unwrap_or(&default);
    let body = read_body(explain.body.as_deref()).map_err(|error| report_error(&error))?;
    let sample = SampleRequest::new(&about, host, &explain.fields, body).map_err(|bad| usage(bad.into()))?;
    let sample = sample.with_client_name(explain.client_name.as_deref());
    let sample = sample.with_claims(explain.claims.as_deref()).map_err(|bad| usage(bad.into()))?;
    let explained =
        explain::explain(&gateway, &sample).map_err(|error| report_error(&ExplainError::Runtime(error)))?;
    Ok(render(&explained, explain.format))
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

fn read_body(given: Option<&str>) -> Result<Bytes, ExplainError> {
    match given.map(|given| (given, given.strip_prefix('@'))) {
        None => Ok(Bytes::new()),
        Some((_, Some(file))) => Ok(fs::read(file).map_err(ExplainError::Body)?.into()),
        Some((text, None)) => Ok(text.to_owned().into()),
    }
}
