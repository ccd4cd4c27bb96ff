//! The log: facts as fields on stderr, for people or for machines.

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

/// How this process writes its log.
static WRITTEN: OnceLock<OutputFormat> = OnceLock::new();

pub(super) fn log_format() -> OutputFormat {
    WRITTEN.get().copied().unwrap_or(OutputFormat::Text)
}

/// Filter, in the syntax of `tracing-subscriber`'s `EnvFilter`.
const FILTER: &str = "FENCEGATE_LOG";

/// If it is set and not empty, nothing has colour (no-color.org).
const NO_COLOR: &str = "NO_COLOR";

/// The client library logs every reconnect at `info`. The events of our own session report each change once.
const DEFAULT: &str = "info,zookeeper_client=error";

/// The result of the command shows how its lock fared, so the log is silent.
const QUIET: &str = "off";

/// How much is logged by default, and how it is written.
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
        // `tracing-subscriber` would report them with `eprintln!`, which panics if the reader of the log is gone.
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

    /// A log has colour on a terminal only, and not where the user has asked for none.
    #[test]
    fn no_color_is_obeyed() {
        let set = |value: &'static str| Some(OsStr::new(value));
        assert!(has_color(true, None) && has_color(true, set("")));
        for (is_terminal, no_color) in [(true, set("1")), (true, set("0")), (false, None), (false, set(""))] {
            assert!(!has_color(is_terminal, no_color), "{is_terminal} {no_color:?}");
        }
    }
}
