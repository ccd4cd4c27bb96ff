//! The host names that one process sees: its own `/etc/hosts`, in its own mount namespace.

use std::{fs, path::PathBuf, process::Command};

use fencegate_testkit::scratch;
use tempfile::TempDir;

use crate::process::TestProcess;

/// Host names with their addresses. A test can change them while the process runs.
pub struct HostsFile {
    home: TempDir,
}

/// The process has no name server, so a name that is missing in the file is unknown at once.
const FILES_ONLY: &str = "hosts: files\n";

impl HostsFile {
    /// A file without any name.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn none() -> Self {
        let home = scratch::temp_dir();
        let hosts = Self { home };
        fs::write(hosts.file("nsswitch.conf"), FILES_ONLY).expect("the folder can be written");
        hosts.set("name", &[]);
        hosts
    }

    /// Sets the addresses of one name, and removes all other names.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
        self.set_all(&[(name.to_owned(), addresses)]);
    }

    /// Sets the addresses of these names, and removes all other names.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn set_all(&self, names: &[(String, Vec<String>)]) {
        let named = names
            .iter()
            .flat_map(|(name, addresses)| addresses.iter().map(move |address| format!("{address} {name}\n")));
        let lines: String = named.collect();
        // Write the file in place: the bind mount of the process would still show the old file after a rename.
        fs::write(self.file("hosts"), lines).expect("the file can be written");
    }

    /// A file for a process that is not started yet, in which no lookup gets an answer, not even that the name is
    /// unknown.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn unresponsive() -> Self {
        let hosts = Self::none();
        fs::remove_file(hosts.file("hosts")).expect("our own file");
        hosts.create_unanswered_pipe("hosts");
        hosts
    }

    /// Makes all lookups hang from now on, in a process that was started with this file.
    ///
    /// # Panics
    /// If the namespaces of the process cannot be entered.
    pub fn stop_responding(&self, process: &TestProcess) {
        let silence = self.create_unanswered_pipe("silence");
        let pid = process.pid().to_string();
        let enter =
            ["--target", &pid, "--user", "--mount", "--preserve-credentials", "--", "mount", "--bind"];
        run(Command::new("nsenter").args(enter).arg(silence).arg("/etc/hosts"));
    }

    /// Makes a pipe without a writer: a process that opens it hangs.
    fn create_unanswered_pipe(&self, name: &str) -> PathBuf {
        let file = self.file(name);
        run(Command::new("mkfifo").arg(&file));
        file
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The command line before a program that sees these names. The user namespace makes root unnecessary.
    /// `--pdeathsig` is set again, so that the process still dies with the test, because the kernel may clear it
    /// when a process enters namespaces.
    pub(crate) fn command(&self) -> Vec<String> {
        const SCRIPT: &str = r#"mount --bind "$0/hosts" /etc/hosts && mount --bind "$0/nsswitch.conf" /etc/nsswitch.conf && exec setpriv --pdeathsig KILL -- "$@""#;
        let mut command: Vec<String> =
            ["unshare", "--map-root-user", "--mount", "sh", "-c", SCRIPT].map(str::to_owned).into();
        command.push(self.home.path().display().to_string());
        command
    }
}

fn run(command: &mut Command) {
    let status = command.status().expect("util-linux and coreutils are there");
    assert!(status.success(), "{command:?}: {status}");
}
