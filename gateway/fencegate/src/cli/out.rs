//! The only outputs of a verb: its result on stdout, and its errors on stderr. Nothing here uses `println!`, which
//! panics if the reader is gone or the disk is full. Also formats points in time for people.

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fencegate_process::{display::error_chain, log_writer::write_stderr};
use tracing::error;

use super::exit::{RUNTIME, UNWRITTEN};

/// Writes lines to stdout. A reader that stops early, such as `head`, is no error.
pub(super) fn print_text(text: impl AsRef<[u8]>) -> Result<(), ExitCode> {
    match write_lines(&mut io::stdout().lock(), text.as_ref()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            print_error(format_args!("error: write to stdout: {error}"));
            Err(ExitCode::from(UNWRITTEN))
        }
        _ => Ok(()),
    }
}

/// Writes a message to stderr. A failure is ignored, because the exit code still reports the error.
pub(super) fn print_error(text: impl ToString) {
    let mut message = Vec::new();
    write_lines(&mut message, text.to_string().as_bytes()).and_then(|()| write_stderr(&message)).ok();
}

/// Reports a failure on stderr, for a user at a terminal.
pub(super) fn report_error(error: &(dyn Error + 'static)) -> ExitCode {
    print_error(format_args!("error: {}", error_chain(error)));
    ExitCode::from(RUNTIME)
}

/// Reports a failure in the log of a serving process.
pub(super) fn log_error(error: &(dyn Error + 'static)) -> ExitCode {
    error!(error = error_chain(error), "the command failed");
    ExitCode::from(RUNTIME)
}

/// Writes the result of a verb to stdout, or its error to stderr.
pub(super) fn print_result<E: Error + 'static>(answer: Result<String, E>) -> Result<(), ExitCode> {
    answer.map_err(|error| report_error(&error)).and_then(print_text)
}

/// Writes the text, with a newline at its end.
fn write_lines(out: &mut dyn Write, text: &[u8]) -> io::Result<()> {
    out.write_all(text)?;
    if !text.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// A point in time with its age. `seconds`: since 1970-01-01 UTC.
pub(super) fn format_unix_seconds_and_age(seconds: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_secs(seconds);
    let ago = SystemTime::now().duration_since(then).unwrap_or_default();
    let ago = humantime::format_duration(Duration::from_secs(ago.as_secs()));
    format!("{} ({ago} ago)", humantime::format_rfc3339_seconds(then))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_ends_with_one_newline() {
        for text in ["a", "a\n"] {
            let mut out = Vec::new();
            write_lines(&mut out, text.as_bytes()).expect("memory takes every byte");
            assert_eq!(out, b"a\n");
        }
    }
}
