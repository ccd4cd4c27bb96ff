//! The request that `explain` and `check` evaluate, as the command line describes it.

use std::{fs, io, process::ExitCode};

use bytes::Bytes;
use clap::Args;
use fencegate_check::explain::{self, ParseSampleRequestError, RequestExplanation, SampleRequest};
use fencegate_policies::plan::GatewayPlan;

use super::{exit::USAGE, out::report_error};

/// The parts of a request beside its method and target.
#[derive(Debug, Args)]
pub(super) struct SampleArgs {
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
    /// Also show what the spellings next to the request would give: other case, suffixes, escapes, a longer list.
    #[arg(long)]
    variants: bool,
}

/// The request could not be explained.
#[derive(Debug, thiserror::Error)]
enum ExplainError {
    #[error(transparent)]
    Sample(#[from] ParseSampleRequestError),
    #[error("cannot read the body")]
    Body(#[source] io::Error),
    #[error("cannot start the async runtime")]
    Runtime(#[source] io::Error),
}

impl SampleArgs {
    /// True if the command line describes any part of a request.
    pub(super) fn is_present(&self) -> bool {
        let Self { fields, body, host, client_name, claims, variants } = self;
        let texts = [body, host, client_name, claims];
        !fields.is_empty() || texts.into_iter().any(Option::is_some) || *variants
    }

    /// Explains the request. `line`: its method and target.
    pub(super) fn explain(&self, gateway: &GatewayPlan, line: &str) -> Result<RequestExplanation, ExitCode> {
        let usage = |error: ParseSampleRequestError| {
            report_error(&ExplainError::Sample(error));
            ExitCode::from(USAGE)
        };
        let default = explain::default_host(&gateway.serving.listener.address);
        let host = self.host.as_deref().unwrap_or(&default);
        let body = read_body(self.body.as_deref()).map_err(|error| report_error(&error))?;
        let sample = SampleRequest::new(line, host, &self.fields, body).map_err(usage)?;
        let sample = sample.with_client_name(self.client_name.as_deref());
        let sample = sample.with_claims(self.claims.as_deref()).map_err(usage)?;
        let explained = match self.variants {
            true => explain::explain_with_variants(gateway, &sample),
            false => explain::explain(gateway, &sample),
        };
        explained.map_err(|error| report_error(&ExplainError::Runtime(error)))
    }
}

fn read_body(given: Option<&str>) -> Result<Bytes, ExplainError> {
    match given.map(|given| (given, given.strip_prefix('@'))) {
        None => Ok(Bytes::new()),
        Some((_, Some(file))) => Ok(fs::read(file).map_err(ExplainError::Body)?.into()),
        Some((text, None)) => Ok(text.to_owned().into()),
    }
}
