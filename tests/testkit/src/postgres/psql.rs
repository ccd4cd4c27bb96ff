//! Questions to a database and sessions with it, by `psql`.

use std::{
    io::{self, BufRead, BufReader, Lines, Read, Write},
    process::{self, ChildStdin, ChildStdout, Command, Stdio},
};

/// What a `psql` connects to, and with which settings of its session.
#[derive(Debug)]
pub(super) struct PsqlTarget {
    pub arguments: [String; 4],
    pub options: String,
}

/// A `psql` that is told what to do as it runs.
#[derive(Debug)]
struct PsqlProcess {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    child: process::Child,
}

/// One `psql` that gets one statement after the other.
pub struct PsqlSession(PsqlProcess);

/// A statement that another session blocks.
pub struct BlockedStatement(PsqlSession);

/// A `psql` that answers one question after the other. The first one that fails ends it.
#[derive(Debug)]
pub(super) struct PsqlQuerySession(PsqlProcess);

/// psql's own variables: how many rows the last statement changed, and with what code it failed.
const TELL: &str = "\\echo ended :ROW_COUNT :SQLSTATE";

/// The line behind the answer to a question.
const ANSWERED: &str = "fencegate: answered";

/// A `psql` that ends with its thread.
fn psql(target: &PsqlTarget) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "stdbuf"]);
    add_psql(&mut command, target);
    command
}

/// Adds what stands behind `stdbuf`.
fn add_psql(command: &mut Command, target: &PsqlTarget) {
    // Each line is forwarded as soon as it is written.
    command.args(["-oL", "psql", "--no-psqlrc", "--quiet", "--tuples-only"]).args(&target.arguments);
    command.env("PGOPTIONS", &target.options);
}

/// What the statements answer, without blanks. They are one transaction, in a session of their own.
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
    /// It may outlive this thread, because another one may ask next. It ends when its input does: with this process at the
    /// latest.
    pub(super) fn start(target: &PsqlTarget) -> Self {
        let mut command = Command::new("stdbuf");
        add_psql(&mut command, target);
        command.args(["--no-align", "--set=ON_ERROR_STOP=1"]).stderr(Stdio::piped());
        // Its error output is read when it has ended, and until then has to find room in the pipe.
        command.env("PGOPTIONS", format!("{} -c client_min_messages=error", target.options));
        Self(PsqlProcess::start(&mut command))
    }

    /// What the statement answers, without blanks.
    ///
    /// # Errors
    /// The error of psql, which has ended.
    pub(super) fn ask(&mut self, statement: &str) -> Result<String, String> {
        // A psql that has ended takes nothing; why is in its error output.
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

    /// `None` if the server has ended since the last question. It may serve again, but not in this session.
    pub(super) fn still_connected(mut self) -> Option<Self> {
        self.ask("SELECT 1").is_ok().then_some(self)
    }
}

impl PsqlSession {
    pub(super) fn start(target: &PsqlTarget, key: &str) -> Self {
        Self(PsqlProcess::start(psql(target).arg(format!("--set=key='{key}'"))))
    }

    /// # Panics
    /// If it fails.
    pub fn run(&mut self, statement: &str) {
        self.rows(statement).unwrap_or_else(|code| panic!("{code}: {statement}"));
    }

    /// How many rows it was about.
    ///
    /// # Errors
    /// Its SQLSTATE.
    pub fn rows(&mut self, statement: &str) -> Result<u64, String> {
        self.write(&format!("{statement}\n{TELL}"));
        self.read_result()
    }

    /// The statement with `:key` and `:token` filled in by psql.
    ///
    /// # Panics
    /// If it fails.
    pub fn raise(&mut self, statement: &str, token: &str) -> u64 {
        self.token(token);
        self.rows(statement).unwrap_or_else(|code| panic!("{code}: {statement}"))
    }

    /// The same, where it has to wait.
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
    /// # Errors
    /// Its SQLSTATE.
    pub fn finish(mut self) -> Result<u64, String> {
        self.0.read_result()
    }
}

impl Drop for PsqlProcess {
    fn drop(&mut self) {
        // Both fail only for one that is gone already.
        drop((self.child.kill(), self.child.wait()));
    }
}
