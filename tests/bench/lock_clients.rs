//! Programs that take locks with a library. All of them are counted over the same window.

use std::{
    fs,
    io::ErrorKind,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fencegate_testkit::child::ChildProcess;

use crate::result::BenchResult;

/// Time for virtual machines to compile hot code after they are up, and for other programs to reach their speed.
const WARM_UP: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_mins(1);

/// The programs. Each prints `UP` when it takes locks. At the end it prints `RESULT <number>`, the number of locks in
/// the window. When all are up, a file gets the start of the window, in milliseconds since 1970.
pub(crate) struct LockClients {
    start: PathBuf,
    programs: Vec<ChildProcess>,
}

impl LockClients {
    /// Starts the programs with these arguments. One of the arguments is the name of the file `start`.
    pub(crate) fn start(start: PathBuf, words: impl IntoIterator<Item = Vec<String>>) -> BenchResult<Self> {
        // Removes the file of the turn before.
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
        // A rename, so that no program reads a half-written file.
        fs::rename(whole, self.start)?;
        let mut locks = 0.0;
        for program in &self.programs {
            let said = program.wait_line(|line| line.starts_with("RESULT "), WARM_UP + window + PATIENCE)?;
            locks += said.trim_start_matches("RESULT ").parse::<f64>()?;
        }
        // The programs close their sessions, so that no lock of this turn is left for the next.
        for program in &self.programs {
            program.wait(PATIENCE).ok_or("a program does not end")?;
        }
        Ok(locks / window.as_secs_f64())
    }
}
