//! The only ways out of a verb: what it says, on stdout, and what is wrong, on stderr. A reader that has gone and a disk
//! that is full are no reason to panic, so nothing here uses `println!`.

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use fencegate_process::said::causes;
use tracing::error;

use super::exit::{RUNTIME, UNWRITTEN};

/// Says it on stdout, as lines. A reader that has seen enough, such as `head`, is no trouble.
pub(super) fn say(text: impl AsRef<[u8]>) -> Result<(), ExitCode> {
    match lines(&mut io::stdout().lock(), text.as_ref()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(format_args!("error: write to stdout: {error}"));
            Err(ExitCode::from(UNWRITTEN))
        }
        _ => Ok(()),
    }
}

/// Says it on stderr. Where that is gone too, the exit code still tells.
pub(super) fn complain(text: impl ToString) {
    lines(&mut io::stderr().lock(), text.to_string().as_bytes()).ok();
}

/// For whoever has asked for something at a terminal.
pub(super) fn failed(trouble: &(dyn Error + 'static)) -> ExitCode {
    complain(format_args!("error: {}", causes(trouble)));
    ExitCode::from(RUNTIME)
}

/// For whoever reads the log of a process that serves.
pub(super) fn ended(trouble: &(dyn Error + 'static)) -> ExitCode {
    error!(error = causes(trouble), "failed");
    ExitCode::from(RUNTIME)
}

/// Says on stdout what a verb has to say, or on stderr why it could not.
pub(super) fn said<E: Error + 'static>(answer: Result<String, E>) -> Result<(), ExitCode> {
    answer.map_err(|trouble| failed(&trouble)).and_then(say)
}

/// With a line end where there is none.
fn lines(out: &mut dyn Write, text: &[u8]) -> io::Result<()> {
    out.write_all(text)?;
    if !text.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_ends_its_line_once() {
        for text in ["a", "a\n"] {
            let mut out = Vec::new();
            lines(&mut out, text.as_bytes()).expect("memory takes every byte");
            assert_eq!(out, b"a\n");
        }
    }
}
