//! Servers that replicate another one, and take its place.

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
    /// The primary does not wait, so the last commits may be missing at the standby.
    Later,
}

/// The `application_name` of the standby at its primary.
const NAME: &str = "standby";

impl PostgresServer {
    /// Starts a second server that replicates this one, and waits until this one streams to it.
    ///
    /// # Panics
    /// If the standby cannot be made or does not start.
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

    /// On a primary: from now on it acknowledges a commit before its standby has received it.
    ///
    /// # Panics
    /// If the setting does not take effect in time.
    pub fn disable_sync_standby(&self) {
        self.database("postgres").run("ALTER SYSTEM RESET synchronous_standby_names");
        self.database("postgres").run("SELECT pg_reload_conf()");
        self.wait_shows("SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'", "async");
    }

    /// On a standby: promotes it, so that it takes writes. It has exactly what it received from its primary.
    ///
    /// # Panics
    /// If the promotion fails.
    pub fn promote(&self) {
        assert_eq!(self.database("postgres").run("SELECT pg_promote(true, 20)"), "t", "{}", self.log());
        // If the copied configuration has this setting, the server would wait for a standby of its own.
        self.database("postgres").run("ALTER SYSTEM RESET synchronous_standby_names");
        self.database("postgres").run("SELECT pg_reload_conf()");
    }

    /// On a standby: ends the replication, so that it receives nothing more from its primary, which goes on.
    pub fn pause_receiving(&self) {
        self.database("postgres").run("ALTER SYSTEM SET primary_conninfo = ''");
        self.database("postgres").run("SELECT pg_reload_conf()");
        self.wait_shows("SELECT count(*) FROM pg_stat_wal_receiver", "0");
    }

    /// Waits until the query gives the wanted answer. Polls, because the server sends no event.
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

    /// Copies the data of the stopped server to `to`, as a snapshot of a machine does.
    ///
    /// # Panics
    /// If the server runs.
    pub fn snapshot(&self, to: &Path) {
        assert!(self.process.is_none(), "its data would change under us");
        copy_folder(&self.folder().join("data"), to);
    }

    /// Replaces the data of the stopped server by a copy that [`PostgresServer::snapshot`] made.
    ///
    /// # Panics
    /// If the server runs.
    pub fn restore(&self, from: &Path) {
        assert!(self.process.is_none(), "its data would change under us");
        std::fs::remove_dir_all(self.folder().join("data")).expect("our own");
        copy_folder(from, &self.folder().join("data"));
    }
}
