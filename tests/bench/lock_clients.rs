//! Programs that take locks through a library. The locks of all of them are counted over the same window.

use std::{
    fs,
    io::ErrorKind,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fencegate_testkit::child::ChildProcess;

use crate::result::BenchResult;

/// The time after the start in which virtual machines compile hot code, and other programs reach their speed.
const WARM_UP: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_mins(1);

/// Running programs. Each prints `UP` when it takes locks. When all are up, a file tells them the start of the
/// window, in milliseconds since 1970. At the end each prints `RESULT <number>`, its number of locks in the window.
pub(crate) struct LockClients {
    start: PathBuf,
    programs: Vec<ChildProcess>,
}

impl LockClients {
    /// Starts the programs. `words`: the command line of each, which names the file `start`.
    pub(crate) fn start(start: PathBuf, words: impl IntoIterator<Item = Vec<String>>) -> BenchResult<Self> {
        // Remove the file of an earlier measurement, because it would start the programs too early.
        fs::remove_file(&start)
            .or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        let mut programs = Vec::new();
        for words in words {
            let (program, arguments) = words.split_first().ok_or("a program is one word at least")?;
            programs.push(ChildProcess::spawn(program, arguments)?);
        }
        Ok(Self { start, programs })
    }

    /// The locks per second of all programs together.
    pub(crate) fn measure_rate(self, window: Duration) -> BenchResult<f64> {
        for program in &self.programs {
            program.wait_line(|line| line == "UP", PATIENCE)?;
        }
        let told = SystemTime::now().duration_since(UNIX_EPOCH)? + WARM_UP;
        let whole = self.start.with_extension("new");
        fs::write(&whole, told.as_millis().to_string())?;
        // Rename the complete file, so that no program reads a half-written one.
        fs::rename(whole, self.start)?;
        let mut locks = 0.0;
        for program in &self.programs {
            let said = program.wait_line(|line| line.starts_with("RESULT "), WARM_UP + window + PATIENCE)?;
            locks += said.trim_start_matches("RESULT ").parse::<f64>()?;
        }
        // Wait until the programs have closed their sessions, so that none of their locks is left for the next
        // measurement.
        for program in &self.programs {
            program.wait(PATIENCE).ok_or("a program does not end")?;
        }
        Ok(locks / window.as_secs_f64())
    }
}
