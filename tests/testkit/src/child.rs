//! A child process that cannot outlive this process. Its output is kept, so that a caller can wait for a line.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
pub use rustix::process::Signal;

/// A running child. Dropping it kills it and waits until the kernel has reaped it.
///
/// It dies with this process in every case, `kill -9` included: `setpriv` makes the kernel kill it when the *thread*
/// that spawned it ends, so all children are spawned by one thread that ends with the process. It leads a process
/// group of its own, so that Ctrl-C in a terminal reaches only this process, which decides in which order the
/// children stop.
#[derive(Debug)]
pub struct ChildProcess {
    process: Mutex<process::Child>,
    pid: u32,
    output: Arc<OutputBuffer>,
}

/// The error if the awaited line did not appear. `log` has the output of the child.
#[derive(Debug, thiserror::Error)]
#[error("{} after {waited:?}; it said:\n{log}", if *.ended { "the process ended without the line" } else { "no such line" })]
pub struct OutputTimeoutError {
    pub waited: Duration,
    /// The child has closed its output, so no further line can come.
    pub ended: bool,
    pub log: String,
}

/// A position in the output of a child. Lines before it are ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutputCursor(u64);

impl ChildProcess {
    /// Starts `program` with `arguments`, standard input closed, both outputs kept.
    ///
    /// # Errors
    /// Returns an error if `setpriv` (Debian package util-linux) cannot be started. A missing `program` is not an
    /// error here: the child ends with status 127 and a message in its log.
    pub fn spawn<A: AsRef<std::ffi::OsStr>>(
        program: impl AsRef<std::ffi::OsStr>,
        arguments: impl IntoIterator<Item = A>,
    ) -> io::Result<Self> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);

        let mut process = spawn_from_lasting_thread(command).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                io::Error::other("`setpriv` is missing: it is in the package util-linux")
            }
            _ => error,
        })?;
        let output = Arc::new(OutputBuffer::default());
        output.read_in_background(process.stdout.take().expect("piped above"));
        output.read_in_background(process.stderr.take().expect("piped above"));
        Ok(Self { pid: process.id(), process: Mutex::new(process), output })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for a line that `wanted` accepts, whether the child has written it already or writes it later.
    ///
    /// # Errors
    /// Returns [`OutputTimeoutError`] if the line did not appear in time, and at once if the child can write nothing
    /// any more.
    pub fn wait_line(
        &self,
        wanted: impl Fn(&str) -> bool,
        timeout: Duration,
    ) -> Result<String, OutputTimeoutError> {
        self.wait_line_after(OutputCursor::default(), wanted, timeout)
    }

    /// Like [`ChildProcess::wait_line`], for the lines that were written after `start` was taken.
    ///
    /// # Errors
    /// Returns the errors of [`ChildProcess::wait_line`].
    pub fn wait_line_after(
        &self,
        start: OutputCursor,
        wanted: impl Fn(&str) -> bool,
        timeout: Duration,
    ) -> Result<String, OutputTimeoutError> {
        self.output.wait_line(start, wanted, timeout)
    }

    /// The end of the output so far.
    pub fn cursor(&self) -> OutputCursor {
        let lines = self.output.lines();
        OutputCursor(lines.dropped + lines.kept.len() as u64)
    }

    /// The output so far, both streams in the order in which they were read; the oldest lines may be gone.
    pub fn log(&self) -> String {
        self.output.lines().text()
    }

    /// Sends a signal to the child. If the child has ended nothing is sent: its process id may belong to another
    /// process.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the signal.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let mut process = self.process();
        if process.try_wait()?.is_some() {
            return Ok(());
        }
        let pid =
            i32::try_from(self.pid).ok().and_then(Pid::from_raw).expect("a process has a positive number");
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// Waits for the end of the child, and returns its exit status; `None` if it still runs after `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            // `try_wait` fails only if another part of this program has reaped the child.
            let ended = self.process().try_wait().expect("our own child, reaped nowhere else");
            if ended.is_some() || Instant::now() >= deadline {
                return ended;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the whole output of the child is in [`ChildProcess::log`]. Processes that the child has started
    /// may keep its output open for longer than `timeout`.
    pub fn wait_output_end(&self, timeout: Duration) {
        // No line matches, so the wait returns at the end of both streams.
        drop(self.output.wait_line(self.cursor(), |_| false, timeout));
    }

    pub fn is_running(&self) -> bool {
        self.wait(Duration::ZERO).is_none()
    }

    fn process(&self) -> MutexGuard<'_, process::Child> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let mut process = self.process();
        // Both calls fail only if the child has ended.
        let _gone = process.kill().and_then(|()| process.wait());
    }
}

type SpawnResult = io::Result<process::Child>;

/// Spawns a child on a thread that lasts as long as this process. The kernel sends the parent-death signal when the
/// spawning thread ends, so the end of a test thread or of a runtime worker would kill its children.
fn spawn_from_lasting_thread(command: Command) -> SpawnResult {
    static SPAWNER: OnceLock<mpsc::Sender<(Command, mpsc::Sender<SpawnResult>)>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<(Command, mpsc::Sender<SpawnResult>)>();
        let serve = move || {
            for (mut command, answer) in inbox {
                // Sending fails only if the caller is gone, and the caller waits below for the answer.
                let _asker_gone = answer.send(command.spawn());
            }
        };
        thread::Builder::new().name("spawner".into()).spawn(serve).expect("a thread can be started");
        jobs
    });
    let (answer, outcome) = mpsc::channel();
    spawner.send((command, answer)).expect("the spawner lives as long as the process");
    outcome.recv().expect("the spawner answers every job")
}

/// The number of lines kept per child: enough to explain a failure, and bounded because a child may run for days.
const KEPT: usize = 4000;
/// Bytes. A line that is longer is cut into several.
const LONGEST: u64 = 16 * 1024;

#[derive(Debug, Default)]
struct OutputBuffer {
    lines: Mutex<LineBuffer>,
    grown: Condvar,
}

#[derive(Debug, Default)]
struct LineBuffer {
    kept: VecDeque<String>,
    dropped: u64,
    /// The streams that are still open.
    readers: usize,
}

impl OutputBuffer {
    fn read_in_background(self: &Arc<Self>, stream: impl Read + Send + 'static) {
        self.lines().readers += 1;
        let output = Arc::clone(self);
        let read = move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while matches!(stream.by_ref().take(LONGEST).read_until(b'\n', &mut line), Ok(1..)) {
                output.push(String::from_utf8_lossy(&line).trim_end().to_owned());
                line.clear();
            }
            output.lines().readers -= 1;
            output.grown.notify_all();
        };
        thread::Builder::new().name("child output".into()).spawn(read).expect("a thread can be started");
    }

    fn push(&self, line: String) {
        let mut lines = self.lines();
        if lines.kept.len() == KEPT {
            lines.kept.pop_front();
            lines.dropped += 1;
        }
        lines.kept.push_back(line);
        drop(lines);
        self.grown.notify_all();
    }

    fn wait_line(
        &self,
        start: OutputCursor,
        wanted: impl Fn(&str) -> bool,
        timeout: Duration,
    ) -> Result<String, OutputTimeoutError> {
        let began = Instant::now();
        let mut next = start.0;
        let mut lines = self.lines();
        loop {
            let skip = usize::try_from(next.saturating_sub(lines.dropped)).unwrap_or(usize::MAX);
            if let Some(line) = lines.kept.iter().skip(skip).find(|line| wanted(line)) {
                return Ok(line.clone());
            }
            next = lines.dropped + lines.kept.len() as u64;
            let waited = began.elapsed();
            let ended = lines.readers == 0;
            if ended || waited >= timeout {
                return Err(OutputTimeoutError { waited, ended, log: lines.text() });
            }
            lines =
                self.grown.wait_timeout(lines, timeout - waited).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lines(&self) -> MutexGuard<'_, LineBuffer> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineBuffer {
    fn text(&self) -> String {
        self.kept.iter().fold(String::new(), |text, line| text + line + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn shell(script: &str) -> ChildProcess {
        ChildProcess::spawn("sh", ["-c", script]).expect("setpriv and sh")
    }

    fn exists(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    /// A line is found whether the child wrote it before or after the call; lines before a given cursor do not count.
    #[test]
    fn wait_line_finds_past_and_future() {
        let child = shell("echo first; echo second >&2; sleep 0.2; echo third; sleep 60");
        assert_eq!(child.wait_line(|line| line == "third", SOON).unwrap(), "third");
        assert_eq!(child.wait_line(|line| line.starts_with("sec"), SOON).unwrap(), "second");
        let late = child.wait_line_after(child.cursor(), |line| line == "first", Duration::from_millis(50));
        assert!(!late.unwrap_err().ended);
    }

    /// A wait for a line ends at once with an error that has the log when the child has ended.
    #[test]
    fn wait_line_fails_when_child_ends() {
        let child = shell("echo the reason >&2; exit 3");
        let missing = child.wait_line(|line| line == "listening", SOON).unwrap_err();
        assert!(missing.ended && missing.waited < SOON, "{missing}");
        assert_eq!(missing.log, "the reason\n");
        assert_eq!(child.wait(SOON).and_then(|status| status.code()), Some(3));
        child.signal(Signal::TERM).expect("a signal to an ended child goes nowhere");
    }

    /// Dropping the handle kills the child, even a child that is stopped by SIGSTOP.
    #[test]
    fn dropped_handle_kills_stopped_child() {
        let child = shell("echo up; exec sleep 60");
        child.wait_line(|line| line == "up", SOON).unwrap();
        child.signal(Signal::STOP).unwrap();
        let pid = child.pid();
        assert!(child.is_running() && exists(pid));
        drop(child);
        assert!(!exists(pid));
    }

    #[test]
    fn child_survives_its_spawning_thread() {
        let child = thread::spawn(|| shell("echo up; exec sleep 60")).join().expect("no panic");
        child.wait_line(|line| line == "up", SOON).unwrap();
        assert_eq!(child.wait(Duration::from_millis(100)), None);
    }

    /// The log keeps at most `KEPT` lines, and a cursor counts also the lines that were dropped.
    #[test]
    fn log_is_bounded_cursor_stays_valid() {
        let child = shell("seq 1 10000; sleep 0.1; echo end");
        assert_eq!(child.wait_line(|line| line == "end", SOON).unwrap(), "end");
        assert_eq!(child.cursor(), OutputCursor(10001));
        assert!(child.log().lines().count() <= KEPT);
    }

    /// The child dies even when this process is killed with SIGKILL. The test kills a stand-in: the same test binary,
    /// started with only the test below.
    #[test]
    fn child_dies_when_parent_is_killed() {
        let ours = std::env::current_exe().expect("own path");
        let script = format!(
            "FENCEGATE_TEST_PARENT=1 exec '{}' --exact child::tests::parent_process_stand_in --nocapture",
            ours.display()
        );
        let parent = shell(&script);
        let line = parent.wait_line(|line| line.contains("grandchild="), SOON).unwrap();
        let pid = line.rsplit('=').next().and_then(|pid| pid.parse().ok()).expect("a process number");
        assert!(exists(pid));
        drop(parent);
        let deadline = Instant::now() + SOON;
        while exists(pid) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(!exists(pid), "the grandchild outlived its parent");
    }

    /// The parent process of `child_dies_when_parent_is_killed`. In a normal test run it does nothing.
    #[test]
    fn parent_process_stand_in() {
        if std::env::var_os("FENCEGATE_TEST_PARENT").is_some() {
            let child = shell("echo up; exec sleep 60");
            child.wait_line(|line| line == "up", SOON).unwrap();
            use io::Write;
            writeln!(io::stderr(), "\ngrandchild={}", child.pid()).unwrap();
            thread::sleep(Duration::from_mins(1));
        }
    }
}
