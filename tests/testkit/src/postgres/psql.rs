//! Queries of a database, and sessions with it, through `psql`.

use std::{
    io::{self, BufRead, BufReader, Lines, Read, Write},
    process::{self, ChildStdin, ChildStdout, Command, Stdio},
};

/// The connection arguments of a `psql`, and the options of its session.
#[derive(Debug)]
pub(super) struct PsqlTarget {
    pub arguments: [String; 4],
    pub options: String,
}

/// A running `psql` that reads commands from its input.
#[derive(Debug)]
struct PsqlProcess {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    child: process::Child,
}

/// A database session that runs one statement after the other.
pub struct PsqlSession(PsqlProcess);

/// A statement that waits for a lock of another session.
pub struct BlockedStatement(PsqlSession);

/// A `psql` that answers one query after the other. A query that fails ends it.
#[derive(Debug)]
pub(super) struct PsqlQuerySession(PsqlProcess);

/// Prints two variables of psql: the number of rows that the last statement changed, and its SQLSTATE.
const TELL: &str = "\\echo ended :ROW_COUNT :SQLSTATE";

/// The line that is printed after the output of each query.
const ANSWERED: &str = "fencegate: answered";

/// The command of a `psql` that ends with the thread that spawns it.
fn psql(target: &PsqlTarget) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "stdbuf"]);
    add_psql(&mut command, target);
    command
}

/// Adds the arguments of `stdbuf`, and of the `psql` that it starts.
fn add_psql(command: &mut Command, target: &PsqlTarget) {
    // `-oL`: `stdbuf` makes psql write each line as soon as it is complete.
    command.args(["-oL", "psql", "--no-psqlrc", "--quiet", "--tuples-only"]).args(&target.arguments);
    command.env("PGOPTIONS", &target.options);
}

/// Runs the statements as one transaction in a session of their own, and returns the trimmed output.
pub(super) fn run_alone(target: &PsqlTarget, statements: &str) -> Result<String, String> {
    let mut command = psql(target);
    command.args(["--no-align", "--set=ON_ERROR_STOP=1", "--command", statements]);
    let done = command.stdin(Stdio::null()).output().expect("setpriv");
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned());
    }
    Ok(String::from_utf8(done.stdout).expect("text").trim_end().to_owned())
}

impl PsqlProcess {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("psql");
        let input = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        Self { input, output: BufReader::new(output).lines(), child }
    }

    fn write(&mut self, lines: &str) -> io::Result<()> {
        writeln!(self.input, "{lines}")
    }
}

impl PsqlQuerySession {
    /// Starts a `psql` that may outlive this thread, because another thread may ask next. It ends when its input is
    /// closed: with this process at the latest.
    pub(super) fn start(target: &PsqlTarget) -> Self {
        let mut command = Command::new("stdbuf");
        add_psql(&mut command, target);
        command.args(["--no-align", "--set=ON_ERROR_STOP=1"]).stderr(Stdio::piped());
        // The error output is read only after psql has ended, so it must fit into the pipe until then: print errors
        // only.
        command.env("PGOPTIONS", format!("{} -c client_min_messages=error", target.options));
        Self(PsqlProcess::start(&mut command))
    }

    /// Runs the statement, and returns its trimmed output.
    ///
    /// # Errors
    /// Returns the error output of psql if the statement fails. psql has then ended.
    pub(super) fn ask(&mut self, statement: &str) -> Result<String, String> {
        // Writing fails if psql has ended. The reason is in its error output, which is read below.
        drop(self.0.write(&format!("{statement}\n;\n\\echo {ANSWERED}")));
        let mut answer = String::new();
        for line in self.0.output.by_ref() {
            let line = line.expect("text");
            if line == ANSWERED {
                return Ok(answer.trim_end().to_owned());
            }
            answer.push_str(&line);
            answer.push('\n');
        }
        let mut error = String::new();
        if let Some(mut told) = self.0.child.stderr.take() {
            told.read_to_string(&mut error).expect("text");
        }
        Err(error)
    }

    /// Returns the session if it still works; `None` if the server has ended since the last query, even if it serves
    /// again.
    pub(super) fn still_connected(mut self) -> Option<Self> {
        self.ask("SELECT 1").is_ok().then_some(self)
    }
}

impl PsqlSession {
    pub(super) fn start(target: &PsqlTarget, key: &str) -> Self {
        Self(PsqlProcess::start(psql(target).arg(format!("--set=key='{key}'"))))
    }

    /// Runs a statement.
    ///
    /// # Panics
    /// If the statement fails.
    pub fn run(&mut self, statement: &str) {
        self.rows(statement).unwrap_or_else(|code| panic!("{code}: {statement}"));
    }

    /// Runs a statement, and returns the number of rows that it changed.
    ///
    /// # Errors
    /// Returns the SQLSTATE of a statement that fails.
    pub fn rows(&mut self, statement: &str) -> Result<u64, String> {
        self.write(&format!("{statement}\n{TELL}"));
        self.read_result()
    }

    /// Runs a statement in which psql replaces `:key` and `:token`, and returns the number of rows that it changed.
    ///
    /// # Panics
    /// If the statement fails.
    pub fn raise(&mut self, statement: &str, token: &str) -> u64 {
        self.token(token);
        self.rows(statement).unwrap_or_else(|code| panic!("{code}: {statement}"))
    }

    /// Begins a statement as [`Self::raise`] does, where a lock of another session makes it wait.
    pub fn begin_raise(mut self, statement: &str, token: &str) -> BlockedStatement {
        self.token(token);
        self.write(&format!("{statement}\n{TELL}"));
        BlockedStatement(self)
    }

    fn token(&mut self, token: &str) {
        self.write(&format!("\\set token '\\'{token}\\''"));
    }

    fn write(&mut self, lines: &str) {
        self.0.write(lines).expect("psql listens");
    }

    fn read_result(&mut self) -> Result<u64, String> {
        let mut lines = self.0.output.by_ref().map(|line| line.expect("text"));
        let told = lines.find_map(|line| line.strip_prefix("ended ").map(str::to_owned));
        let told = told.expect("psql goes on");
        let (rows, code) = told.split_once(' ').expect("two words");
        if code == "00000" { Ok(rows.parse().expect("a number")) } else { Err(code.to_owned()) }
    }
}

impl BlockedStatement {
    /// Waits for the end of the statement, and returns the number of rows that it changed.
    ///
    /// # Errors
    /// Returns the SQLSTATE of a statement that fails.
    pub fn finish(mut self) -> Result<u64, String> {
        self.0.read_result()
    }
}

impl Drop for PsqlProcess {
    fn drop(&mut self) {
        // Both calls fail only if psql has ended already.
        drop((self.child.kill(), self.child.wait()));
    }
}
