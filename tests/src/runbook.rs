//! Extracts commands from documents, and runs the commands of an alert's section of the runbook as printed.

use std::{fs, process::Output};

use tokio::task::spawn_blocking;

use crate::{alert_watch::FiringAlert, gateway::command, prometheus::deploy};

/// The commands of one section, and this installation's values for the placeholders in the runbook.
pub struct RunbookWalk {
    commands: Vec<String>,
    own: Vec<(&'static str, String)>,
    /// The exit codes of commands that do not end with 0.
    ends: Vec<(&'static str, i32)>,
}

impl RunbookWalk {
    /// Reads the section that the alert's `runbook_url` names.
    ///
    /// # Panics
    /// If the runbook has no such section.
    pub fn for_alert(firing: &FiringAlert) -> Self {
        let url = firing.annotations["runbook_url"].as_str().expect("a runbook_url");
        let wanted = url.split_once('#').expect("a section").1;
        let runbook = fs::read_to_string(deploy().join("RUNBOOK.md")).expect("shipped");
        let is_it = |line: &&str| {
            line.strip_prefix("## ").is_some_and(|title| title.to_lowercase().replace(' ', "-") == wanted)
        };
        let lines = runbook.lines().skip_while(|line| !is_it(line));
        let section: Vec<&str> = lines
            .enumerate()
            .take_while(|(n, line)| *n == 0 || !line.starts_with("##"))
            .map(|(_, line)| line)
            .collect();
        assert!(section.len() > 2, "no section {wanted}");
        // Other commands need a machine with systemd or a cluster, and words such as `fencegate check` are not whole
        // commands.
        let whole = |command: &String| {
            command.starts_with("curl ")
                || command.starts_with("fencegate ") && (command.contains(" -") || command.contains("/etc/"))
        };
        let commands = commands_in(&section.join("\n")).into_iter().filter(whole).collect();
        Self { commands, own: Vec::new(), ends: Vec::new() }
    }

    /// Sets the value of this installation for a printed placeholder.
    #[must_use]
    pub fn with(mut self, printed: &'static str, own: impl ToString) -> Self {
        self.own.push((printed, own.to_string()));
        self
    }

    /// Sets the exit code that the section states for a command that fails in this state.
    #[must_use]
    pub fn with_exit_code(mut self, command: &'static str, code: i32) -> Self {
        self.ends.push((command, code));
        self
    }

    /// Leaves out a command that the section prints for another case.
    ///
    /// # Panics
    /// If the section has no such command.
    #[must_use]
    pub fn skip(mut self, command: &str) -> Self {
        let before = self.commands.len();
        self.commands.retain(|told| !told.starts_with(command));
        assert!(self.commands.len() < before, "no `{command}`: {:?}", self.commands);
        self
    }

    /// Runs the commands in their order.
    ///
    /// # Panics
    /// If a command ends with another exit code than its section states, or there is no command.
    pub async fn follow(self) {
        assert!(!self.commands.is_empty(), "nothing to run");
        for told in &self.commands {
            let typed: Vec<String> = split_words(told).iter().map(|word| self.fill_in_word(word)).collect();
            let expected =
                self.ends.iter().find(|(start, _)| told.starts_with(start)).map_or(0, |(_, code)| *code);
            let ended = run(&typed).await;
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert_eq!(
                ended.status.code(),
                Some(expected),
                "`{told}`, typed as {typed:?}: {said}{}",
                String::from_utf8_lossy(&ended.stdout)
            );
        }
    }

    fn fill_in_word(&self, word: &str) -> String {
        let own = |(printed, own): &(&str, String)| {
            let is_place = printed.contains(['/', ':']);
            (word == *printed || is_place && word.contains(printed)).then(|| word.replace(printed, own))
        };
        let typed = self.own.iter().find_map(own).unwrap_or_else(|| word.to_owned());
        let blank = typed.len() > 1 && typed.chars().all(|c| c.is_ascii_uppercase());
        assert!(!blank && !typed.starts_with("/etc/"), "whose {typed}?");
        typed
    }
}

async fn run(typed: &[String]) -> Output {
    let arguments: Vec<&str> = typed[1..].iter().map(String::as_str).collect();
    if typed[0] == "fencegate" {
        return command(&arguments).await.expect("started");
    }
    let mut other = std::process::Command::new(&typed[0]);
    other.args(arguments);
    spawn_blocking(move || other.output()).await.expect("no panic").expect("started")
}

/// The commands that a text tells its reader to type: the lines of its code blocks, and text in backticks.
pub fn commands_in(text: &str) -> Vec<String> {
    let known = |command: &str| {
        ["fencegate ", "systemctl ", "curl ", "deploy/", "tests/"]
            .iter()
            .any(|start| command.starts_with(start))
    };
    let blocks = text.lines().filter_map(|line| line.strip_prefix("    ")).map(|line| {
        let command = line.split("  #").next().unwrap_or_default();
        command.trim().to_owned()
    });
    let inline = text.split('`').skip(1).step_by(2).map(str::to_owned);
    blocks.chain(inline).filter(|command| known(command) && !command.contains("{")).collect()
}

/// Splits a command into words as a shell does, as far as the documents need it.
pub fn split_words(command: &str) -> Vec<String> {
    let pieces = command.split('\'').enumerate();
    pieces
        .flat_map(|(n, piece)| match n % 2 {
            1 => vec![piece.to_owned()],
            _ => piece.split_whitespace().map(str::to_owned).collect(),
        })
        .take_while(|word| word != ">" && word != "|")
        .collect()
}
