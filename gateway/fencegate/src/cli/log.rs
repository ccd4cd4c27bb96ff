//! The log: facts as fields on stderr, for people or for programs.

use std::{
    env,
    ffi::OsStr,
    io::{IsTerminal, stderr},
    sync::OnceLock,
};

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, Layer as _, fmt, fmt::writer::BoxMakeWriter, prelude::*};

use fencegate_process::log_writer::stderr_queue_writer;
use fencegate_zookeeper::session::negotiated_timeout;

/// The format of the log, or of a verb's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    Text,
    Json,
}

/// The format in which this process writes its log.
static WRITTEN: OnceLock<OutputFormat> = OnceLock::new();

pub(super) fn log_format() -> OutputFormat {
    WRITTEN.get().copied().unwrap_or(OutputFormat::Text)
}

/// The environment variable with the filter, in the syntax of `tracing-subscriber`'s `EnvFilter`.
const FILTER: &str = "FENCEGATE_LOG";

/// The environment variable that switches colours off if it is set and not empty (no-color.org).
const NO_COLOR: &str = "NO_COLOR";

/// The default filter. The ZooKeeper library logs every reconnect at `info`, so it is limited to errors: our own
/// session reports each change once.
const DEFAULT: &str = "info,zookeeper_client=error";

/// The default filter of a command under a lock: nothing, because the result of the command tells what happened
/// to its lock.
const QUIET: &str = "off";

/// The default amount of logging, and how the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogProfile {
    /// For a process that serves requests or holds a lock: none of its threads waits for the reader of stderr.
    Serving,
    /// For a verb that reads or changes something and ends. Its log lines precede its final output.
    Brief,
    /// Nothing unless requested: stderr belongs to the command that runs under the lock.
    Quiet,
}

pub(super) fn start_logging(format: OutputFormat, loudness: LogProfile) {
    WRITTEN.set(format).ok();
    let filter = EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| {
        EnvFilter::new(match loudness {
            LogProfile::Serving | LogProfile::Brief => DEFAULT,
            LogProfile::Quiet => QUIET,
        })
    });
    let writer = match loudness {
        LogProfile::Serving | LogProfile::Quiet => BoxMakeWriter::new(stderr_queue_writer()),
        LogProfile::Brief => BoxMakeWriter::new(stderr),
    };
    let lines = fmt::layer()
        .with_writer(writer)
        // `tracing-subscriber` would report its own errors with `eprintln!`, which panics if no reader of stderr
        // is left.
        .log_internal_errors(false)
        .with_ansi(has_color(stderr().is_terminal(), env::var_os(NO_COLOR).as_deref()));
    let lines = match format {
        OutputFormat::Text => lines.boxed(),
        OutputFormat::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(negotiated_timeout::negotiated_timeout_layer())
        .init();
}

fn has_color(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log has colour only on a terminal, and only if `NO_COLOR` is not set.
    #[test]
    fn no_color_is_obeyed() {
        let set = |value: &'static str| Some(OsStr::new(value));
        assert!(has_color(true, None) && has_color(true, set("")));
        for (is_terminal, no_color) in [(true, set("1")), (true, set("0")), (false, None), (false, set(""))] {
            assert!(!has_color(is_terminal, no_color), "{is_terminal} {no_color:?}");
        }
    }
}
