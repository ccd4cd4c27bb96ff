//! Servers that follow another one, and take its place.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{
    PostgresServer, USER,
    programs::{copy_folder, run, server_folder},
};
use crate::wait::PATIENCE;

/// Whether the primary waits for its standby before it acknowledges a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandbyMode {
    Synchronously,
    /// The last commits may be missing at the standby.
    Later,
}

/// Its name towards the primary.
const NAME: &str = "standby";

impl PostgresServer {
    /// A second server that has everything which this one has, and follows it.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn standby(&self, follows: StandbyMode) -> Self {
        let folder = server_folder();
        let source = format!(
            "host={} port={} user={USER} application_name={NAME}",
            self.folder().display(),
            self.port
        );
        let arguments = [
            "--pgdata=data",
            "--wal-method=stream",
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
        ];
        run(&folder, "pg_basebackup", &[&arguments[..], &["--dbname", &source]].concat())
            .expect("the primary gives a copy");
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        let standby = Self::start_in(folder, &settings);
        if follows == StandbyMode::Synchronously {
            self.database("postgres").run(&format!("ALTER SYSTEM SET synchronous_standby_names = '{NAME}'"));
            self.database("postgres").run("SELECT pg_reload_conf()");
        }
        let wanted = match follows {
            StandbyMode::Synchronously => "sync",
            StandbyMode::Later => "async",
        };
        self.wait_shows("SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'", wanted);
        standby
    }

    /// From now on a primary acknowledges a commit before its standby has it.
    ///
    /// # Panics
    /// If it does not.
    pub fn disable_sync_standby(&self) {
        self.database("postgres").run("ALTER SYSTEM RESET synchronous_standby_names");
        self.database("postgres").run("SELECT pg_reload_conf()");
        self.wait_shows("SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'", "async");
    }

    /// From now on a standby takes writes. It has exactly what it received from its primary.
    ///
    /// # Panics
    /// If it does not.
    pub fn promote(&self) {
        assert_eq!(self.database("postgres").run("SELECT pg_promote(true, 20)"), "t", "{}", self.log());
        // Otherwise it would wait for a standby of its own.
        self.database("postgres").run("ALTER SYSTEM RESET synchronous_standby_names");
        self.database("postgres").run("SELECT pg_reload_conf()");
    }

    /// A standby receives nothing more until `PostgresServer` resumes it; its primary goes on.
    pub fn pause_receiving(&self) {
        self.database("postgres").run("ALTER SYSTEM SET primary_conninfo = ''");
        self.database("postgres").run("SELECT pg_reload_conf()");
        self.wait_shows("SELECT count(*) FROM pg_stat_wal_receiver", "0");
    }

    /// Polls, because the server sends no event.
    fn wait_shows(&self, question: &str, wanted: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let seen = self.database("postgres").run(question);
            if seen == wanted {
                return;
            }
            assert!(Instant::now() < until, "{question}: `{seen}`, and not `{wanted}`");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// A copy of its data while it is stopped, and back to it: as a machine that is restored from a snapshot.
    ///
    /// # Panics
    /// If it runs.
    pub fn snapshot(&self, to: &Path) {
        assert!(self.process.is_none(), "its data would change under us");
        copy_folder(&self.folder().join("data"), to);
    }

    /// # Panics
    /// If it runs.
    pub fn restore(&self, from: &Path) {
        assert!(self.process.is_none(), "its data would change under us");
        std::fs::remove_dir_all(self.folder().join("data")).expect("our own");
        copy_folder(from, &self.folder().join("data"));
    }
}
