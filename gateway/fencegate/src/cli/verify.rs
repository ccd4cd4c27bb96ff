//! `fencegate verify`: tests whether a service compares tokens.

use std::{fs, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use fencegate_http_client::upstream::tls::UpstreamTlsConnector;
use fencegate_policies::plan;
use fencegate_verify as verify;
use fencegate_verify::{
    TestKeyAlphabet, VerifyServiceError, cases,
    connection::InstanceAddress,
    effects::{EffectSelector, EffectSource},
    report::{CaseReport, CaseResultCounts, json, junit, text},
    service::{
        DeadlineSupport, HeaderNameMapping, KeysPerRequest, OutcomeProbeTemplate, SharedModeSupport,
        TestedService,
    },
    template::RequestTemplate,
    token_headers::{ComparedHeaderKind, ComparedTokenHeaders},
};
use hyper::header::HeaderName;

use super::{
    exit::{FAILED, UNDECIDED, UNREACHABLE, USAGE},
    out::{print_error, print_text, report_error},
};

/// The end of the `--help` text.
pub(super) const CODES: &str = "\
Exit codes: 0 every case that applies has passed; 2 the command line makes no sense; 3 a case failed; 4 none failed, and \
one could not be decided; 69 the service could not be reached; 74 the report could not be written.

It makes up keys and tokens, the largest that there is among them, and what it writes stays there: run it against a \
database that is thrown away. A floor that is raised above these tokens would refuse real ones.

    fencegate verify http://127.0.0.1:8000 --request 'POST /v1/accounts/{key}/debit' \\
        --body '{\"operation\":\"{operation}\",\"amount\":1}' \\
        --observe 'GET /v1/accounts/{key}' --pick /balance";

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// The address of the service: `http://host:port` or `https://host`, with a path if need be. A second one is
    /// another instance with the same database.
    #[arg(value_name = "URL", required_unless_present = "list")]
    service: Vec<String>,
    /// A request that changes something: method and target. `{key}` is where the key stands, `{other}` a second key,
    /// `{operation}` a name that is new for each request; also in --header and --body.
    #[arg(long, value_name = "REQUEST", required_unless_present = "list")]
    request: Option<String>,
    /// A field of every request, such as an `Authorization`; may be given several times.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    fields: Vec<String>,
    /// The body of the request; `@FILE` reads it from there. JSON, unless --header names another `Content-Type`.
    #[arg(short = 'd', long, value_name = "BODY|@FILE")]
    body: Option<String>,
    /// A request whose answer shows each effect as soon as the service has answered it, such as 'GET
    /// /v1/accounts/{key}'.
    #[arg(long, value_name = "REQUEST")]
    observe: Option<String>,
    /// A JSON pointer into that answer, to a number that changes by the same amount with each effect.
    #[arg(long, value_name = "POINTER", requires = "observe")]
    pick: Option<String>,
    /// A regular expression that matches that answer once for each effect on `{key}`.
    #[arg(long, value_name = "REGEX", requires = "observe", conflicts_with = "pick")]
    count: Option<String>,
    /// A file to which the service writes a line for each effect, with the key in it.
    #[arg(long, value_name = "FILE", conflicts_with = "observe")]
    effects_file: Option<PathBuf>,
    /// Wait this long before looking for effects.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration)]
    settle: Duration,
    /// The field that the service compares: `Fencing-Token` or `Fencing-Number`.
    #[arg(long, value_enum, default_value_t = ComparedTokenFieldArg::Field, value_name = "WHAT")]
    token: ComparedTokenFieldArg,
    /// The service's own name for `Fencing-Token`.
    #[arg(long, value_name = "NAME", default_value = plan::TokenHeaderNames::TOKEN, hide_default_value = true)]
    token_field: HeaderName,
    /// The service's own name for `Fencing-Number`.
    #[arg(long, value_name = "NAME", default_value = plan::TokenHeaderNames::NUMBER, hide_default_value = true)]
    number_field: HeaderName,
    /// The form that the gateway's policy gives to a key, such as `account/{key}`. It stands in `Fencing-Key`.
    #[arg(long, value_name = "TEXT", default_value = "{key}")]
    fencing_key: String,
    /// How many keys a request is about. Default: `several` if the request names `{other}`.
    #[arg(long, value_enum, value_name = "HOW MANY")]
    keys: Option<KeysPerRequestArg>,
    /// Use keys of digits only.
    #[arg(long)]
    numeric_keys: bool,
    /// The service cannot tell `Fencing_Token` from `Fencing-Token`: it gets its fields by CGI, WSGI or the like.
    #[arg(long)]
    folded_names: bool,
    /// The service refuses what comes after `Fencing-Not-After`. Every request has the field then.
    #[arg(long)]
    not_after: bool,
    /// Where a guard asks the service what became of an operation, as `probe.path` in the file of the guard:
    /// '/v1/operations/{operation}'. The service closes the name as it says that the operation was not done. The request
    /// has `{operation}` in it then.
    #[arg(long, value_name = "PATH", requires = "done", requires = "not_done")]
    probe: Option<String>,
    /// A status that answers --probe with: it was done; several are separated by commas.
    #[arg(long, value_name = "STATUS", requires = "probe", value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(200..=499))]
    done: Vec<u16>,
    /// A status that answers --probe with: it was not done; several are separated by commas.
    #[arg(long, value_name = "STATUS", requires = "probe", value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(200..=499))]
    not_done: Vec<u16>,
    /// The service also keeps a mark of readers, so it supports `Fencing-Mode: shared`.
    #[arg(long)]
    shared: bool,
    /// The request of readers, such as 'GET /v1/accounts/{key}'. Default: the one of --request.
    #[arg(long, value_name = "REQUEST", requires = "shared")]
    read: Option<String>,
    /// Another kind of request that changes something about the same key.
    #[arg(long, value_name = "REQUEST")]
    also: Option<String>,
    /// The body of --also. Default: the one of --body.
    #[arg(long, value_name = "BODY|@FILE", requires = "also")]
    also_body: Option<String>,
    /// Wait this long, then test whether a mark is still known.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    remember: Option<Duration>,
    /// A request with the same effect that takes long, so that other requests can overtake it.
    #[arg(long, value_name = "REQUEST")]
    slow_request: Option<String>,
    /// The body of --slow-request. Default: the one of --body.
    #[arg(long, value_name = "BODY|@FILE", requires = "slow_request")]
    slow_body: Option<String>,
    /// A shell command that ends the service as a crash does, and has it started again.
    #[arg(long, value_name = "COMMAND")]
    restart: Option<String>,
    /// How often each race is run.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// The time limit for one answer.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Play this case alone; may be given several times.
    #[arg(long, value_name = "CASE")]
    only: Vec<String>,
    /// List the cases, and play none.
    #[arg(long)]
    list: bool,
    /// The CA of the service's certificate. Default: the CAs that the system trusts.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The form of the report: for people, for programs, or JUnit for CI systems.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = VerifyFormat::Text)]
    format: VerifyFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ComparedTokenFieldArg {
    /// `Fencing-Token`: a new token must be greater.
    Field,
    /// `Fencing-Number`: must not be smaller.
    Number,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KeysPerRequestArg {
    One,
    Several,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VerifyFormat {
    Text,
    Json,
    Junit,
}

pub(super) fn run(arguments: &VerifyArgs) -> Result<(), ExitCode> {
    if arguments.list {
        return print_text(case_list());
    }
    let service = build_service(arguments).map_err(|error| {
        print_error(format_args!("error: {error}"));
        ExitCode::from(USAGE)
    })?;
    let names = if arguments.numeric_keys { TestKeyAlphabet::Numeric } else { TestKeyAlphabet::Alphanumeric };
    let mut written = Ok(());
    let mut tell = |line: String| {
        if written.is_ok() && arguments.format == VerifyFormat::Text {
            written = print_text(line);
        }
    };
    tell(text::render_head(&service));
    let report = verify::verify(&service, names, |entry: &CaseReport| tell(text::render_entry(entry)));
    let report = report.map_err(|error| {
        let code = match error {
            VerifyServiceError::Unreachable { .. } => ExitCode::from(UNREACHABLE),
            VerifyServiceError::Gateway { .. } => ExitCode::from(USAGE),
            VerifyServiceError::Runtime(_) => return report_error(&error),
        };
        report_error(&error);
        code
    })?;
    match arguments.format {
        VerifyFormat::Text => tell(text::render_tail(&report)),
        VerifyFormat::Json => written = print_text(json::render_json(&service, &report)),
        VerifyFormat::Junit => written = print_text(junit::render_junit(&service, &report)),
    }
    exit_result(report.counts())?;
    written
}

fn exit_result(counts: CaseResultCounts) -> Result<(), ExitCode> {
    match counts {
        CaseResultCounts { failed: 1.., .. } => Err(ExitCode::from(FAILED)),
        CaseResultCounts { undecided: 1.., .. } => Err(ExitCode::from(UNDECIDED)),
        // A run in which no case passed proves nothing about the service.
        CaseResultCounts { passed: 0, .. } => Err(ExitCode::from(UNDECIDED)),
        _ => Ok(()),
    }
}

fn case_list() -> String {
    let lines =
        cases::all().map(|case| format!("{:9}  {:20}  {}\n", case.group.as_str(), case.name, case.title));
    lines.collect()
}

/// The service as the command line describes it; an error text if the description is invalid.
fn build_service(arguments: &VerifyArgs) -> Result<TestedService, String> {
    let body = read_text(arguments.body.as_deref())?;
    let template = |line: &str, body: &str| {
        RequestTemplate::new(line, &arguments.fields, body).map_err(|bad| bad.to_string())
    };
    let keyed = |line: &str, body: &str| template(line, body)?.with_key().map_err(|bad| bad.to_string());
    let request = arguments.request.as_deref().expect("asked for by clap");
    let write = keyed(request, &body)?;
    let read = match arguments.read.as_deref() {
        Some(read) => keyed(read, "")?,
        None => write.clone(),
    };
    let beside = |line: &Option<String>, own: &Option<String>| {
        let own = read_text(own.as_deref())?;
        line.as_deref().map(|line| keyed(line, if own.is_empty() { &body } else { &own })).transpose()
    };
    let reach = keys_per_request(arguments, &write)?;
    let probe = build_probe(arguments, &write)?;
    check_arguments(arguments)?;
    Ok(TestedService {
        instances: instances(arguments)?,
        write,
        read,
        also: beside(&arguments.also, &arguments.also_body)?,
        slow: beside(&arguments.slow_request, &arguments.slow_body)?,
        fields: token_field_names(arguments),
        fencing_key: arguments.fencing_key.clone(),
        sharing: if arguments.shared { SharedModeSupport::TwoMarks } else { SharedModeSupport::Exclusive },
        reach,
        names: if arguments.folded_names { HeaderNameMapping::Folded } else { HeaderNameMapping::Spelled },
        deadlines: if arguments.not_after { DeadlineSupport::Enforced } else { DeadlineSupport::Unclaimed },
        probe,
        sight: effect_source(arguments, &template)?,
        remember: arguments.remember,
        settle: arguments.settle,
        patience: arguments.timeout,
        restart: arguments.restart.clone(),
        rounds: arguments.rounds,
        only: arguments.only.clone(),
    })
}

fn keys_per_request(arguments: &VerifyArgs, write: &RequestTemplate) -> Result<KeysPerRequest, String> {
    match (arguments.keys, write.names_two_keys()) {
        (Some(KeysPerRequestArg::One), true) => {
            Err("the request names `{other}`: leave out `--keys one`".to_owned())
        }
        (Some(KeysPerRequestArg::One) | None, false) => Ok(KeysPerRequest::One),
        (Some(KeysPerRequestArg::Several), _) | (None, true) => Ok(KeysPerRequest::Several),
    }
}

/// The probe that asks the service about an operation. It has none of the fields of a request, because a guard sends
/// none of them either.
fn build_probe(
    arguments: &VerifyArgs,
    write: &RequestTemplate,
) -> Result<Option<OutcomeProbeTemplate>, String> {
    let Some(path) = arguments.probe.as_deref() else { return Ok(None) };
    let ask =
        RequestTemplate::new(&format!("GET {path}"), &[], "").map_err(|bad| format!("`--probe`: {bad}"))?;
    if !ask.names_operations() {
        return Err(format!("`{path}` asks about no operation: write `{{operation}}` into `--probe`"));
    }
    if !write.names_operations() {
        return Err(format!(
            "`{write}` names no operation: write `{{operation}}` where the service looks for it"
        ));
    }
    if let Some(both) = arguments.done.iter().find(|status| arguments.not_done.contains(status)) {
        return Err(format!("{both} cannot mean both, `--done` and `--not-done`"));
    }
    Ok(Some(OutcomeProbeTemplate { ask, done: arguments.done.clone(), not_done: arguments.not_done.clone() }))
}

fn check_arguments(arguments: &VerifyArgs) -> Result<(), String> {
    let unknown = |name: &&String| !cases::all().any(|case| case.name == **name);
    if let Some(name) = arguments.only.iter().find(unknown) {
        return Err(format!("no case is called `{name}`: `fencegate verify --list` names them"));
    }
    let key = &arguments.fencing_key;
    if !key.contains("{key}") || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(
            "`--fencing-key` has `{key}` in it, and neither blanks nor characters beyond ASCII".to_owned()
        );
    }
    Ok(())
}

fn instances(arguments: &VerifyArgs) -> Result<Vec<InstanceAddress>, String> {
    let tls = plan::ClientTls { ca_file: arguments.ca_file.clone(), ..plan::ClientTls::default() };
    let secured = arguments
        .service
        .iter()
        .any(|url| url.starts_with("https://"))
        .then(|| UpstreamTlsConnector::open(&tls));
    let secured = secured
        .transpose()
        .map_err(|bad| format!("cannot use TLS: {}", fencegate_process::display::error_chain(&bad)))?;
    let secured = Arc::new(secured.unwrap_or_else(UpstreamTlsConnector::trusting_none));
    let parsed = arguments.service.iter().map(|url| InstanceAddress::parse(url, || secured.clone()));
    parsed.collect::<Result<_, _>>().map_err(|bad| bad.to_string())
}

fn token_field_names(arguments: &VerifyArgs) -> ComparedTokenHeaders {
    let form = match arguments.token {
        ComparedTokenFieldArg::Field => ComparedHeaderKind::Token,
        ComparedTokenFieldArg::Number => ComparedHeaderKind::Number,
    };
    ComparedTokenHeaders {
        form,
        token: arguments.token_field.clone(),
        number: arguments.number_field.clone(),
    }
}

fn effect_source(
    arguments: &VerifyArgs,
    template: &dyn Fn(&str, &str) -> Result<RequestTemplate, String>,
) -> Result<EffectSource, String> {
    if let Some(file) = &arguments.effects_file {
        return Ok(EffectSource::File(file.clone()));
    }
    let Some(observe) = &arguments.observe else { return Ok(EffectSource::Answers) };
    let pick = match (&arguments.pick, &arguments.count) {
        (Some(pointer), _) if !pointer.is_empty() && !pointer.starts_with('/') => {
            return Err(format!("`{pointer}` is no JSON pointer: write `/balance`"));
        }
        (Some(pointer), _) => EffectSelector::Pointer(pointer.clone()),
        (None, Some(expression)) => {
            EffectSelector::count(expression).map_err(|bad| format!("`--count`: {bad}"))?
        }
        (None, None) => EffectSelector::Whole,
    };
    Ok(EffectSource::Observe { ask: template(observe, "")?, pick })
}

fn read_text(given: Option<&str>) -> Result<String, String> {
    match given.map(|given| (given, given.strip_prefix('@'))) {
        None => Ok(String::new()),
        Some((_, Some(file))) => {
            fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))
        }
        Some((text, None)) => Ok(text.to_owned()),
    }
}
