//! A PostgreSQL of its own, empty, on a socket in a folder that goes with it; and sessions with it, by `psql`.

use std::{
    fs,
    io::{BufRead, BufReader, Lines, Write},
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::{self, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use fencegate::demo::child::Child;
use fencegate_tests::patience::PATIENCE;
use tempfile::TempDir;

/// `nobody`: the server does not run as root.
const NOBODY: u32 = 65534;

pub(crate) struct Postgres {
    home: TempDir,
    _server: Child,
}

/// Where Debian has the newest version.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("installed by tests/run").flatten();
    let newest = versions.max_by_key(|entry| {
        let version: Option<u32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        version.unwrap_or_default()
    });
    newest.expect("a version").path().join("bin")
}

/// In front of a program that must not run as root. The signal for our end comes last: a change of user takes it away.
pub(crate) fn unprivileged(home: &Path) -> Vec<String> {
    let mut words = vec!["setpriv".to_owned()];
    if fs::metadata("/proc/self").expect("proc(5)").uid() == 0 {
        chown(home, Some(NOBODY), Some(NOBODY)).expect("root may");
        words.extend([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()]);
        words.extend(["--", "setpriv"].map(str::to_owned));
    }
    words.extend(["--pdeathsig", "KILL", "--"].map(str::to_owned));
    words
}

impl Postgres {
    /// # Panics
    /// If it does not start; Debian has it as `postgresql`.
    pub(crate) fn start() -> Self {
        // The folder of the tests may be closed to other users, and the path of a socket has to be short.
        let home = TempDir::with_prefix("fencegate-tests-").expect("a folder");
        let data = home.path().join("data");
        let front = unprivileged(home.path());
        let (program, front) = front.split_first().expect("setpriv");
        // Its own order of text is not that of bytes.
        let made = Command::new(program)
            .args(front)
            .arg(programs().join("initdb"))
            .args(["--auth=trust", "--username=service", "--no-sync", "--encoding=UTF8"])
            .args(["--locale-provider=icu", "--icu-locale=en", "--locale=C"])
            .arg(format!("--pgdata={}", data.display()))
            .current_dir(home.path())
            .output()
            .expect("setpriv");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut words = front.to_vec();
        words.push(programs().join("postgres").display().to_string());
        words.extend(["-D".to_owned(), data.display().to_string()]);
        let sockets = format!("unix_socket_directories={}", home.path().display());
        for setting in ["listen_addresses=", "fsync=off", &sockets] {
            words.extend(["-c".to_owned(), setting.to_owned()]);
        }
        let server = Child::spawn(program, words).expect("setpriv");
        let ready = |line: &str| line.contains("ready to accept connections");
        server.wait_line(ready, PATIENCE).expect("it starts");
        Self { home, _server: server }
    }

    /// Where its socket is.
    pub(crate) fn sockets(&self) -> &Path {
        self.home.path()
    }

    /// A session whose statements are about this key.
    pub(super) fn session(&self, key: &str) -> Session {
        let mut child = Command::new("setpriv")
            // Each line is told as soon as it is written.
            .args([
                "--pdeathsig",
                "KILL",
                "--",
                "stdbuf",
                "-oL",
                "psql",
                "--no-psqlrc",
                "--quiet",
                "--tuples-only",
            ])
            .args([
                "--host",
                &self.home.path().display().to_string(),
                "--username=service",
                "--dbname=postgres",
            ])
            .arg(format!("--set=key='{key}'"))
            // Who waits in vain is told so, and the test with it.
            .env("PGOPTIONS", format!("-c statement_timeout={}", PATIENCE.as_millis()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("setpriv");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Session { input, output: BufReader::new(output).lines(), child }
    }

    /// Polls: the server tells whoever asks, there is no event.
    ///
    /// # Panics
    /// If no session waits for another one.
    pub(super) fn sees_one_wait(&self) {
        const WAITING: &str = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock';";
        // Within a transaction the answer would stay what it was at first.
        let mut asking = self.session("");
        let until = Instant::now() + PATIENCE;
        while asking.rows(WAITING) != Ok(1) {
            assert!(Instant::now() < until, "nobody waits");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// One `psql` that is told one statement after the other.
pub(super) struct Session {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    child: process::Child,
}

/// A statement that somebody else keeps from ending.
pub(super) struct Waiting(Session);

/// psql's own variables: how many rows the last statement changed, and with what code it failed.
const TELL: &str = "\\echo ended :ROW_COUNT :SQLSTATE";

impl Session {
    /// # Panics
    /// If it fails.
    pub(super) fn run(&mut self, statement: &str) {
        self.rows(statement).unwrap_or_else(|code| panic!("{code}: {statement}"));
    }

    /// The statement as it stands in the README, with `:key` and `:token` filled in by psql.
    pub(super) fn raise(&mut self, statement: &str, token: &str) -> u64 {
        self.token(token);
        self.rows(statement).unwrap_or_else(|code| panic!("{code}: {statement}"))
    }

    /// The same, where it has to wait.
    pub(super) fn begin_to_raise(mut self, statement: &str, token: &str) -> Waiting {
        self.token(token);
        self.write(&format!("{statement}\n{TELL}"));
        Waiting(self)
    }

    fn rows(&mut self, statement: &str) -> Result<u64, String> {
        self.write(&format!("{statement}\n{TELL}"));
        self.ended()
    }

    fn token(&mut self, token: &str) {
        self.write(&format!("\\set token '\\'{token}\\''"));
    }

    fn write(&mut self, lines: &str) {
        writeln!(self.input, "{lines}").expect("psql listens");
    }

    fn ended(&mut self) -> Result<u64, String> {
        let told = self.output.find_map(|line| line.expect("text").strip_prefix("ended ").map(str::to_owned));
        let told = told.expect("psql goes on");
        let (rows, code) = told.split_once(' ').expect("two words");
        if code == "00000" { Ok(rows.parse().expect("a number")) } else { Err(code.to_owned()) }
    }
}

impl Waiting {
    pub(super) fn ended(mut self) -> Result<u64, String> {
        self.0.ended()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Both fail only for one that is gone already.
        drop((self.child.kill(), self.child.wait()));
    }
}
