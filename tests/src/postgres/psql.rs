//! Sessions with a database, by `psql`.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{self, ChildStdin, ChildStdout, Command, Stdio},
};

use super::TestDatabase;
use crate::wait::PATIENCE;

/// One `psql` that gets one statement after the other.
pub struct PsqlSession {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    child: process::Child,
}

/// A statement that another session blocks.
pub struct BlockedStatement(PsqlSession);

/// psql's own variables: how many rows the last statement changed, and with what code it failed.
const TELL: &str = "\\echo ended :ROW_COUNT :SQLSTATE";

/// In front of the arguments of a `psql` that ends with its thread.
const PSQL: [&str; 6] = ["--pdeathsig", "KILL", "--", "stdbuf", "-oL", "psql"];

fn psql(database: &TestDatabase) -> Command {
    let mut command = Command::new("setpriv");
    // Each line is forwarded as soon as it is written.
    command.args(PSQL).args(["--no-psqlrc", "--quiet", "--tuples-only"]);
    command.args(database.arguments());
    // A wait that fails is reported to the test.
    command.env("PGOPTIONS", format!("-c statement_timeout={}", PATIENCE.as_millis()));
    command
}

/// What the statements answer, without blanks.
fn run(database: &TestDatabase, statements: &str) -> Result<String, String> {
    let mut command = psql(database);
    command.args(["--no-align", "--set=ON_ERROR_STOP=1", "--command", statements]);
    let done = command.stdin(Stdio::null()).output().expect("setpriv");
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned());
    }
    Ok(String::from_utf8(done.stdout).expect("text").trim_end().to_owned())
}

impl TestDatabase {
    /// A session whose statements are about this key.
    pub fn session(&self, key: &str) -> PsqlSession {
        PsqlSession::start(self, key)
    }

    /// # Errors
    /// The error of psql for a statement that fails.
    pub fn try_run(&self, statements: &str) -> Result<String, String> {
        run(self, statements)
    }
}

impl PsqlSession {
    fn start(database: &TestDatabase, key: &str) -> Self {
        let mut command = psql(database);
        let mut child = command
            .arg(format!("--set=key='{key}'"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("setpriv");
        let input = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        Self { input, output: BufReader::new(output).lines(), child }
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
        writeln!(self.input, "{lines}").expect("psql listens");
    }

    fn read_result(&mut self) -> Result<u64, String> {
        let told = self.output.find_map(|line| line.expect("text").strip_prefix("ended ").map(str::to_owned));
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

impl Drop for PsqlSession {
    fn drop(&mut self) {
        // Both fail only for one that is gone already.
        drop((self.child.kill(), self.child.wait()));
    }
}
