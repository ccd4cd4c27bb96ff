//! `fencegate explain`: what would become of a request, or what a code means.

use std::{fs, io, path::PathBuf, process::ExitCode};

use bytes::Bytes;
use clap::Args;
use fencegate_policies::diagnose::Code;

use super::{USAGE, log::Format, policy, told};
use crate::explain::{self, Ask, BadAsk, Explained};

#[derive(Debug, Args)]
pub(super) struct Explain {
    /// A request, such as 'POST /v1/orders/42/capture', or a code, such as FG0203.
    #[arg(value_name = "REQUEST|CODE")]
    about: String,
    /// The policy that decides; not needed for a code.
    #[arg(short = 'c', long = "config", value_name = "POLICY")]
    policy: Option<PathBuf>,
    /// A header field of the request; may be given several times.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    fields: Vec<String>,
    /// The body of the request; `@FILE` reads it from there.
    #[arg(short = 'd', long = "data", value_name = "BODY|@FILE")]
    body: Option<String>,
    /// Whom the client believes to talk to; the address of the listener unless given.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Why nothing could be explained.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("`{0}` is no code; a request needs its policy: add `-c policy.yaml`")]
    NoPolicy(String),
    #[error(transparent)]
    Ask(#[from] BadAsk),
    #[error("read the body")]
    Body(#[source] io::Error),
    #[error("start a runtime")]
    Runtime(#[source] io::Error),
}

/// What is to be printed.
pub(super) fn run(explain: &Explain) -> Result<String, ExitCode> {
    if let Some(code) = Code::parse(&explain.about) {
        return Ok(story(code));
    }
    let usage = |trouble: Trouble| {
        told(&trouble);
        ExitCode::from(USAGE)
    };
    let Some(policy) = &explain.policy else {
        return Err(usage(Trouble::NoPolicy(explain.about.clone())));
    };
    let gateway = policy::read(policy)?;
    let default = explain::default_host(gateway.serving.listener.address);
    let host = explain.host.as_deref().unwrap_or(&default);
    let body = body(explain.body.as_deref()).map_err(|trouble| told(&trouble))?;
    let ask = Ask::new(&explain.about, host, &explain.fields, body).map_err(|bad| usage(bad.into()))?;
    let explained = explain::explain(&gateway, &ask).map_err(|error| told(&Trouble::Runtime(error)))?;
    Ok(written(&explained, explain.format))
}

fn written(explained: &Explained, format: Format) -> String {
    match format {
        Format::Text => explained.to_string().trim_end().to_owned(),
        Format::Json => serde_json::to_string_pretty(explained).expect("plain fields serialise"),
    }
}

fn story(code: Code) -> String {
    format!("{code}: {}\n\n{}", code.meaning(), code.story())
}

fn body(given: Option<&str>) -> Result<Bytes, Trouble> {
    match given.map(|given| (given, given.strip_prefix('@'))) {
        None => Ok(Bytes::new()),
        Some((_, Some(file))) => Ok(fs::read(file).map_err(Trouble::Body)?.into()),
        Some((text, None)) => Ok(text.to_owned().into()),
    }
}
