//! The log: facts as fields on stderr, for people or for machines.

use std::{
    io::{IsTerminal, stderr},
    sync::OnceLock,
};

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, Layer as _, fmt, prelude::*};

use fencegate_lock::session::granted;

/// How something is written: the lines of the log, or what a verb prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// How this process writes its log.
static WRITTEN: OnceLock<Format> = OnceLock::new();

pub(super) fn format() -> Format {
    WRITTEN.get().copied().unwrap_or(Format::Text)
}

/// Filter, in the syntax of `tracing-subscriber`'s `EnvFilter`.
const FILTER: &str = "FENCEGATE_LOG";

/// The client library tells every reconnect at info; the session's own events say it once.
const DEFAULT: &str = "info,zookeeper_client=error";

/// What a lock meets on its way is told by what becomes of its command.
const QUIET: &str = "off";

/// How much is said where nobody has set a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loudness {
    /// What an operator of a process that serves wants to know.
    Serving,
    /// Only what has gone wrong: stderr is the command's that we run.
    Quiet,
}

pub(super) fn start(format: Format, loudness: Loudness) {
    WRITTEN.set(format).ok();
    let filter = EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| {
        EnvFilter::new(match loudness {
            Loudness::Serving => DEFAULT,
            Loudness::Quiet => QUIET,
        })
    });
    let lines = fmt::layer()
        .with_writer(stderr)
        // It would be told with `eprintln!`, which panics: whoever reads the log may go before we do.
        .log_internal_errors(false)
        .with_ansi(stderr().is_terminal());
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(granted::layer()).init();
}
