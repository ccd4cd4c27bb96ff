//! A command under `fencegate lock` or `fencegate elect`: the processes around it, the times at which it ran, and
//! its end.

pub mod gateway_mishap;
pub mod measured;
pub mod mishap;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use fencegate_process::clock::BootInstant;
use fencegate_testkit::{
    child::{ChildProcess, Signal},
    scratch,
    wait::wait_until,
};
use rustix::process::{Pid, kill_process};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    gateway::{Gateway, PolicyFile, write_policy},
    policy::TestPolicy,
    process::binary,
};

/// A running `fencegate lock` (the lock keeper), its supervisor and its command. Dropping this kills the lock
/// keeper, and the other two processes end with it.
pub struct LockedCommand {
    keeper: ChildProcess,
    home: TempDir,
}

/// The record that a command writes about the time in which it runs, see `charged/heart.py`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLifetime {
    pub token: String,
    pub began: BootInstant,
    pub last: BootInstant,
}

/// The source of the lock: ZooKeeper, by a policy, or the gateways that these arguments name.
pub struct TestLockSource(Result<String, Vec<String>>);

impl From<&TestPolicy> for TestLockSource {
    fn from(policy: &TestPolicy) -> Self {
        Self(Ok(policy.to_string()))
    }
}

impl TestLockSource {
    /// The lock is a lease at one of these gateways, for the client whose token is in the file `bearer`.
    pub fn via_gateways(gateways: &[&Gateway], bearer: &Path) -> Self {
        let doors = gateways
            .iter()
            .flat_map(|gateway| ["--gateway".to_owned(), format!("http://{}", gateway.public)]);
        let shown = ["--bearer-file".to_owned(), bearer.display().to_string()];
        Self(Err(doors.chain(shown).collect()))
    }
}

/// The behavior of a command at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandBehavior {
    /// The command ends on SIGTERM.
    Meek,
    /// The command ignores SIGTERM and ends only when it is killed.
    Stubborn,
    /// The command ends by itself at once.
    Brief,
}

impl CommandBehavior {
    fn word(self) -> &'static str {
        match self {
            Self::Meek => "meek",
            Self::Stubborn => "stubborn",
            Self::Brief => "brief",
        }
    }
}

/// A grace for sessions of 2 s, short enough to leave time for late renewals.
pub const GRACE: [&str; 2] = ["--grace", "250ms"];

/// The path of the script that records the time in which it runs.
pub fn heart_script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/charged/heart.py")
}

impl LockedCommand {
    /// Starts a command that records the time in which it runs. `verb`: `lock KEY` or `elect NAME`, with options.
    ///
    /// # Panics
    /// If the lock keeper cannot be started.
    pub fn spawn(way: impl Into<TestLockSource>, verb: &[&str], manner: CommandBehavior) -> Self {
        let heart = heart_script().display().to_string();
        let life = "life".to_owned();
        Self::begin(way.into(), verb, |home| {
            let life = home.join(&life).display().to_string();
            vec!["python3".to_owned(), heart, life, manner.word().to_owned()]
        })
    }

    /// Starts a line of a shell as the command. `$HOME_OF_TEST` is a folder of its own.
    ///
    /// # Panics
    /// If the lock keeper cannot be started.
    pub fn spawn_shell(way: impl Into<TestLockSource>, verb: &[&str], line: &str) -> Self {
        Self::begin(way.into(), verb, |_| ["sh", "-c", line].map(str::to_owned).into())
    }

    fn begin(
        TestLockSource(way): TestLockSource,
        verb: &[&str],
        command: impl FnOnce(&Path) -> Vec<String>,
    ) -> Self {
        let home = scratch::temp_dir();
        let folder = format!("HOME_OF_TEST={}", home.path().display());
        // The process that runs the tests may ignore some signals, and its children would inherit that, so reset it.
        let mut line = vec!["--default-signal".to_owned(), folder, binary().display().to_string()];
        line.extend(verb.iter().map(|word| (*word).to_owned()));
        match way {
            Ok(policy) => {
                let file = write_policy(home.path(), &policy).display().to_string();
                line.extend(["-c".to_owned(), file]);
            }
            Err(arguments) => line.extend(arguments),
        }
        line.push("--".to_owned());
        line.extend(command(home.path()));
        let keeper = ChildProcess::spawn("env", line).expect("setpriv");
        Self { keeper, home }
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The record of the command; `None` until it has written one.
    pub fn record(&self) -> Option<CommandLifetime> {
        CommandLifetime::read(&self.home().join("life"))
    }

    /// Waits until the command runs, and returns its record.
    pub async fn wait_record(&self) -> CommandLifetime {
        let lives = async {
            loop {
                if let Some(life) = self.record() {
                    return life;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        wait_until("the command to run", lives, || self.log()).await
    }

    pub fn keeper(&self) -> Pid {
        pid(self.keeper.pid())
    }

    /// The process id of the supervisor.
    ///
    /// # Panics
    /// If there is no supervisor.
    pub fn supervisor(&self) -> Pid {
        only_child(self.keeper())
    }

    /// The process id of the command.
    ///
    /// # Panics
    /// If there is no command.
    pub fn command(&self) -> Pid {
        only_child(self.supervisor())
    }

    /// Waits for the end of the lock keeper. Returns its exit code, or 128 and the number of the signal that ended
    /// it.
    ///
    /// # Panics
    /// If the lock keeper does not end in time.
    pub async fn exit(&self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let ended = async {
            loop {
                if let Some(status) = self.keeper.wait(Duration::ZERO) {
                    self.keeper.wait_output_end(Duration::from_millis(500));
                    return status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        wait_until("its end", ended, || self.log()).await
    }

    pub fn is_running(&self) -> bool {
        self.keeper.is_running()
    }

    pub fn signal(&self, signal: Signal) {
        self.keeper.signal(signal).expect("our own child");
    }

    /// Waits for a line of the output, whether it was printed before the call or comes later.
    ///
    /// # Panics
    /// If the line does not come in time.
    pub async fn wait_output(&self, what: &str) -> String {
        let said = async {
            loop {
                if let Some(line) = self.log().lines().find(|line| line.contains(what)) {
                    return line.to_owned();
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        wait_until(what, said, || self.log()).await
    }

    /// The whole output of the lock keeper and of its command.
    pub fn log(&self) -> String {
        self.keeper.log()
    }

    /// The end of the session deadline, which the lock keeper printed when it ended the command.
    pub async fn proof_deadline(&self) -> BootInstant {
        let line = self.wait_output("proven until ").await;
        let seconds = line.split("proven until ").nth(1).and_then(|rest| rest.split(' ').next());
        let seconds: f64 = seconds.and_then(|seconds| seconds.parse().ok()).expect("a number");
        BootInstant::from_nanos(Duration::from_secs_f64(seconds).as_nanos().try_into().expect("some years"))
    }
}

impl CommandLifetime {
    /// Reads a record; `None` if there is none or it is malformed.
    ///
    /// # Panics
    /// Never.
    pub fn read(file: &Path) -> Option<Self> {
        let text = fs::read_to_string(file).ok()?;
        let mut words = text.split_whitespace();
        let token = words.next()?.to_owned();
        let mut at = || Some(BootInstant::from_nanos(words.next()?.parse().ok()?));
        Some(Self { token, began: at()?, last: at()? })
    }
}

/// Creates the installation of a policy.
///
/// # Panics
/// If the installation cannot be created.
pub async fn install(policy: &TestPolicy) {
    let file = PolicyFile::new(policy);
    let made = crate::gateway::command(&["era", "init", "-c", &file]).await.expect("started");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Sends a signal to a process that is not our child.
///
/// # Panics
/// If the process does not exist any more.
pub fn signal(process: Pid, signal: Signal) {
    kill_process(process, signal).expect("it is there");
}

/// True if the process runs or is stopped. A zombie does not count as alive.
pub fn is_alive(process: Pid) -> bool {
    let said = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    said.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}

/// Waits for the end of a process. Polls, because the kernel reports it only to the parent of the process.
pub async fn wait_dead(process: Pid) {
    let dead = async {
        while is_alive(process) {
            sleep(Duration::from_millis(2)).await;
        }
    };
    wait_until("the end of a process", dead, || process).await;
}

fn only_child(of: Pid) -> Pid {
    let list = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    let mut children = list.split_whitespace().filter_map(|child| child.parse().ok());
    pid(children.next().unwrap_or_else(|| panic!("{of} has no child")))
}

fn pid(number: u32) -> Pid {
    i32::try_from(number).ok().and_then(Pid::from_raw).expect("the number of a process")
}
