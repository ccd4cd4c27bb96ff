//! A database that one test has to itself, and the arguments to connect to it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use super::psql::{PsqlQuerySession, PsqlSession, PsqlTarget, run_alone};
use crate::wait::PATIENCE;

/// A database that no other test uses.
#[derive(Debug, Clone)]
pub struct TestDatabase {
    pub address: SocketAddr,
    pub name: String,
    /// The folder of the server's Unix socket.
    folder: PathBuf,
    /// The schema of names that state none; `None` for PostgreSQL's default search path.
    schema: Option<&'static str>,
    /// The session of the last query, kept for the next one. Clones of the database share it.
    kept: Arc<Mutex<Option<PsqlQuerySession>>>,
}

/// The user that connects to every database, and owns everything.
pub const USER: &str = "service";

impl TestDatabase {
    /// Refers to an existing database, on the server whose socket is in `folder`.
    pub(super) fn new(address: SocketAddr, name: &str, folder: &Path) -> Self {
        let name = name.to_owned();
        let folder = folder.to_owned();
        Self { address, name, folder, schema: None, kept: Arc::default() }
    }

    /// The same database, with `schema` for names that state none.
    #[must_use]
    pub fn in_schema(self, schema: &'static str) -> Self {
        Self { schema: Some(schema), kept: Arc::default(), ..self }
    }

    /// The connection URL in the form of libpq.
    pub fn url(&self) -> String {
        self.url_at(&[self.address])
    }

    /// The connection URL with other addresses: those of a proxy, or of several servers of which one is the primary.
    pub fn url_at(&self, addresses: &[SocketAddr]) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("postgresql://{USER}@{}/{}", hosts.join(","), self.name)
    }

    /// The arguments by which `psql` and similar programs connect to the database.
    pub fn arguments(&self) -> [String; 4] {
        [
            format!("--host={}", self.folder.display()),
            format!("--port={}", self.address.port()),
            format!("--username={USER}"),
            format!("--dbname={}", self.name),
        ]
    }

    fn target(&self) -> PsqlTarget {
        let found = self.schema.map(|schema| format!(" -c search_path={schema}"));
        // A statement that waits too long fails, so that the test reports it and does not hang.
        let options = format!("-c statement_timeout={}{}", PATIENCE.as_millis(), found.unwrap_or_default());
        PsqlTarget { arguments: self.arguments(), options }
    }

    /// Starts a session that has `key` as its variable.
    pub fn session(&self, key: &str) -> PsqlSession {
        PsqlSession::start(&self.target(), key)
    }

    /// Runs the statements, and returns their output. A single statement runs in a session that is kept for the next
    /// one, because starting a process costs more than the query.
    ///
    /// # Errors
    /// Returns the error of psql if a statement fails.
    pub fn try_run(&self, statements: &str) -> Result<String, String> {
        let statement = statements.trim_end().trim_end_matches(';');
        // psql runs several statements as one transaction only if they are an argument; from its input it would send
        // them one by one.
        if statement.contains(';') {
            return run_alone(&self.target(), statements);
        }
        // The kept session may be waiting for a lock, and this query may be the one that shows it. So the query must
        // not wait for the session.
        let Ok(mut kept) = self.kept.try_lock() else { return run_alone(&self.target(), statements) };
        let connected = kept.take().and_then(PsqlQuerySession::still_connected);
        let mut session = connected.unwrap_or_else(|| PsqlQuerySession::start(&self.target()));
        let answer = session.ask(statement)?;
        *kept = Some(session);
        Ok(answer)
    }

    /// Runs the statements, and returns their output: a line for each row, with `|` between the columns.
    ///
    /// # Panics
    /// If a statement fails.
    pub fn run(&self, statements: &str) -> String {
        self.try_run(statements).unwrap_or_else(|error| panic!("{error}: {statements}"))
    }

    /// Waits until one session of the database waits for a lock.
    ///
    /// # Panics
    /// If no session waits for a lock in time.
    pub fn wait_one_blocked(&self) {
        self.wait_blocked(1);
    }

    /// Waits until this number of sessions of the database wait for a lock. Polls, because the server sends no
    /// event.
    ///
    /// # Panics
    /// If the number of waiting sessions does not become this number in time.
    pub fn wait_blocked(&self, sessions: usize) {
        const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        let until = Instant::now() + PATIENCE;
        while self.run(WAITING) != sessions.to_string() {
            assert!(Instant::now() < until, "not {sessions} wait");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
