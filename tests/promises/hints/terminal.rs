//! The terminal of an operator: a folder, and environment variables.

use std::{
    env, fs,
    net::SocketAddr,
    path::Path,
    process::{Command, Output, Stdio},
};

use fencegate_testkit::{
    child::{ChildProcess, Signal},
    scratch,
    wait::{PATIENCE, wait_until},
};
use fencegate_tests::{gateway::write_policy, policy::TestPolicy};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use super::sources::PLACEHOLDERS;

/// How the file or process is named to a command: by an option, or by an environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetArgument {
    Option,
    Variable,
}

pub(super) struct TestTerminal {
    home: TempDir,
    /// The option that is appended to each command of [`Self::run_verb`].
    option: String,
    variable: Option<(&'static str, String)>,
    /// The placeholders in capitals, each with its value.
    meant: Vec<(String, String)>,
    /// The printed commands that have run successfully.
    pub(super) typed: Vec<String>,
}

impl TestTerminal {
    pub(super) fn new() -> Self {
        let mut terminal = Self {
            home: scratch::temp_dir(),
            option: String::new(),
            variable: None,
            meant: Vec::new(),
            typed: Vec::new(),
        };
        terminal.define_placeholder("CODE", "FG0203");
        terminal
    }

    /// The terminal of an operator who works with this file.
    pub(super) fn for_policy(argument: TargetArgument, file: &TestPolicy) -> Self {
        let terminal = Self::new();
        let path = write_policy(terminal.home.path(), &file.to_string()).display().to_string();
        terminal.with_target(argument, "-c", "FENCEGATE_CONFIG", path)
    }

    /// The terminal of an operator who queries the process with this admin listener.
    pub(super) fn for_admin(argument: TargetArgument, admin: SocketAddr) -> Self {
        Self::new().with_target(argument, "--admin", "FENCEGATE_ADMIN", admin.to_string())
    }

    fn with_target(
        self,
        argument: TargetArgument,
        option: &str,
        variable: &'static str,
        value: String,
    ) -> Self {
        match argument {
            TargetArgument::Option => Self { option: format!(" {option} {value}"), ..self },
            TargetArgument::Variable => Self { variable: Some((variable, value)), ..self },
        }
    }

    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(super) fn write_file(&self, name: &str, text: &str) {
        fs::write(self.home.path().join(name), text).expect("our own folder");
    }

    /// Replaces the policy file of the terminal.
    pub(super) fn rewrite_policy(&self, file: &TestPolicy) {
        write_policy(self.home.path(), &file.to_string());
    }

    pub(super) fn define_placeholder(&mut self, word: &str, value: &str) {
        self.meant.retain(|(known, _)| known != word);
        self.meant.push((word.to_owned(), value.to_owned()));
    }

    /// Runs a verb on the file or process of the terminal, and returns its output.
    pub(super) async fn run_verb(&self, verb: &str) -> String {
        self.run_line(&format!("fencegate {verb}{}", self.option)).await
    }

    pub(super) async fn run_line(&self, line: &str) -> String {
        let output = self.runs(line.to_owned()).await;
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Runs all commands in the printed text. Each has to succeed.
    pub(super) async fn run_printed_commands(&mut self, printed: &str) {
        let found = commands_in(printed);
        assert!(!found.is_empty(), "no command is printed: {printed}");
        for line in found {
            if self.variable.is_some() {
                let named = line.contains(" -c /") || line.contains(" --admin ");
                let needed = printed.contains("FG0120") || printed.contains("FG0254");
                assert!(!named || needed, "it names what the environment names: {line}");
            }
            self.run_successfully(&line).await;
        }
    }

    pub(super) async fn run_successfully(&mut self, line: &str) {
        let whole = self.fill_placeholders(line);
        let output = self.runs(whole.clone()).await;
        assert!(output.status.success(), "`{line}`, typed as `{whole}`: {output:?}");
        self.typed.push(whole);
    }

    /// Repeats a command that is refused with the text `refused` until some time has passed.
    pub(super) async fn retry_refused(&mut self, line: &str, refused: &str) {
        let last = || "it is refused";
        let works = async {
            loop {
                let output = self.runs(line.to_owned()).await;
                if output.status.success() {
                    return;
                }
                let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(stderr.contains(refused), "`{line}`: {stderr}");
            }
        };
        wait_until(line, works, last).await;
        self.typed.push(line.to_owned());
    }

    /// Replaces the placeholders of a command. A command that makes a key file gets a new path, and one that reads a
    /// key file gets an existing one.
    fn fill_placeholders(&self, line: &str) -> String {
        let words = line.split(' ').map(|word| match (PLACEHOLDERS.contains(&word), word) {
            (true, "KEYFILE") => self.key_file(line.contains("keys new")),
            (true, _) => {
                let meant = self.meant.iter().find(|(known, _)| known == word);
                meant.unwrap_or_else(|| panic!("what is {word} in `{line}`?")).1.clone()
            }
            (false, word) => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    fn key_file(&self, is_made: bool) -> String {
        let count = fs::read_dir(self.home.path()).expect("our own folder").count();
        let path =
            self.home.path().join(if is_made { format!("key-{count}.json") } else { "key.json".to_owned() });
        if !is_made && !path.exists() {
            let made =
                Command::new(scratch::binaries().join("fencegate")).args(["keys", "new"]).arg(&path).output();
            assert!(made.expect("started").status.success());
        }
        path.display().to_string()
    }

    async fn runs(&self, line: String) -> Output {
        let path = format!("PATH={}:{}", scratch::binaries().display(), env::var("PATH").unwrap_or_default());
        let mut words = vec![
            format!("--chdir={}", self.home.path().display()),
            "--unset=FENCEGATE_CONFIG".to_owned(),
            "--unset=FENCEGATE_ADMIN".to_owned(),
            path,
        ];
        words.extend(self.variable.iter().map(|(name, value)| format!("{name}={value}")));
        let script =
            format!("exec {line}").replace("exec fencegate init minimal >", "fencegate init minimal >");
        let serves = line.contains(" --init ") || line.contains(" run -c ") || line.contains(" guard -c ");
        let command = move || {
            if serves {
                words.extend(["sh", "-c", &script].map(str::to_owned));
                return stop_when_listening(&words);
            }
            words.extend(["timeout", "60", "sh", "-c", &script].map(str::to_owned));
            Command::new("env").args(words).stdin(Stdio::null()).output().expect("started")
        };
        spawn_blocking(command).await.expect("no panic")
    }
}

/// The output of a process that serves. It is stopped in order as soon as it listens for clients, which shows that it
/// starts. A process that cannot serve ends by itself.
///
/// # Panics
/// Panics if the process neither listens nor ends, or if it does not end when it is stopped.
fn stop_when_listening(words: &[String]) -> Output {
    let child = ChildProcess::spawn("env", words).expect("setpriv");
    let for_clients = |line: &str| line.contains(": listening ") && !line.contains("listener=\"admin\"");
    if child.wait_line(for_clients, PATIENCE).is_ok() {
        child.signal(Signal::TERM).expect("our own child");
    }
    let status = child.wait(PATIENCE).unwrap_or_else(|| panic!("it goes on:\n{}", child.log()));
    child.wait_output_end(PATIENCE);
    Output { status, stdout: child.log().into_bytes(), stderr: Vec::new() }
}

/// The commands in a printed text, in order.
pub(super) fn commands_in(printed: &str) -> Vec<String> {
    let begins = printed.match_indices("fencegate ").map(|(at, _)| &printed[at..]);
    let commands = begins.filter_map(|text| {
        let ends = text.find(['`', '\n', '"']).unwrap_or(text.len());
        let line = text[..ends].split("   ").next().unwrap_or_default().trim_end();
        let verb = line.split(' ').nth(1).unwrap_or_default();
        verb.chars().all(|char| char.is_ascii_lowercase()).then(|| line.to_owned())
    });
    commands.collect()
}
