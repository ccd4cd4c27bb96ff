//! Programs that take locks with a library of others, counted over one window that is the same for all of them.

use std::{
    fs,
    io::ErrorKind,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fencegate::demo::child::Child;

use crate::outcome::Outcome;

/// For virtual machines that are up, to compile what is hot, and for others to find their pace.
const WARM_UP: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_mins(1);

/// Each says `UP` when it takes locks, and `RESULT <number>` in the end: those that it took within the window, which
/// begins at the time, in milliseconds since 1970, that is written to a file once all are up.
pub(crate) struct Takers {
    start: PathBuf,
    programs: Vec<Child>,
}

impl Takers {
    /// Each with the words that start it, of which one names the file `start`.
    pub(crate) fn start(start: PathBuf, words: impl IntoIterator<Item = Vec<String>>) -> Outcome<Self> {
        // That of the turn before.
        fs::remove_file(&start)
            .or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        let mut programs = Vec::new();
        for words in words {
            let (program, arguments) = words.split_first().ok_or("a program is one word at least")?;
            programs.push(Child::spawn(program, arguments)?);
        }
        Ok(Self { start, programs })
    }

    /// Locks per second, of all together.
    pub(crate) fn rate(self, window: Duration) -> Outcome<f64> {
        for program in &self.programs {
            program.wait_line(|line| line == "UP", PATIENCE)?;
        }
        let told = SystemTime::now().duration_since(UNIX_EPOCH)? + WARM_UP;
        let whole = self.start.with_extension("new");
        fs::write(&whole, told.as_millis().to_string())?;
        // Nobody reads half of it.
        fs::rename(whole, self.start)?;
        let mut locks = 0.0;
        for program in &self.programs {
            let said = program.wait_line(|line| line.starts_with("RESULT "), WARM_UP + window + PATIENCE)?;
            locks += said.trim_start_matches("RESULT ").parse::<f64>()?;
        }
        // They close their sessions; a lock of this turn is no part of the next.
        for program in &self.programs {
            program.wait(PATIENCE).ok_or("a program does not end")?;
        }
        Ok(locks / window.as_secs_f64())
    }
}
