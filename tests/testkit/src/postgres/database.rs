//! A database that one test has to itself, and how it is reached.

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
    /// Where the server's socket is.
    folder: PathBuf,
    /// The only one in which names are found that tell no schema; `None` for PostgreSQL's own choice.
    schema: Option<&'static str>,
    /// The session of the last question, for the next one. Copies of this have the same.
    kept: Arc<Mutex<Option<PsqlQuerySession>>>,
}

/// The owner of everything.
pub const USER: &str = "service";

impl TestDatabase {
    /// One that is there, on the server whose socket is in `folder`.
    pub(super) fn new(address: SocketAddr, name: &str, folder: &Path) -> Self {
        let (name, folder) = (name.to_owned(), folder.to_owned());
        Self { address, name, folder, schema: None, kept: Arc::default() }
    }

    /// The same, where names without a schema are of this one.
    #[must_use]
    pub fn in_schema(self, schema: &'static str) -> Self {
        Self { schema: Some(schema), kept: Arc::default(), ..self }
    }

    /// As libpq has it.
    pub fn url(&self) -> String {
        self.url_at(&[self.address])
    }

    /// The same behind other addresses: a relay, or several servers of which one is the primary.
    pub fn url_at(&self, addresses: &[SocketAddr]) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("postgresql://{USER}@{}/{}", hosts.join(","), self.name)
    }

    /// For `psql` and its kin: whom to connect to.
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
        // A wait that fails is reported to the test.
        let options = format!("-c statement_timeout={}{}", PATIENCE.as_millis(), found.unwrap_or_default());
        PsqlTarget { arguments: self.arguments(), options }
    }

    /// A session whose statements are about this key.
    pub fn session(&self, key: &str) -> PsqlSession {
        PsqlSession::start(&self.target(), key)
    }

    /// A single statement is asked in a session that is kept for the next one: to start a process for each question costs
    /// more than its answer.
    ///
    /// # Errors
    /// The error of psql for a statement that fails.
    pub fn try_run(&self, statements: &str) -> Result<String, String> {
        let statement = statements.trim_end().trim_end_matches(';');
        // From its input psql would send several statements one by one.
        if statement.contains(';') {
            return run_alone(&self.target(), statements);
        }
        // An answer may wait for a lock, which another question is to show: none waits here for the answer to another.
        let Ok(mut kept) = self.kept.try_lock() else { return run_alone(&self.target(), statements) };
        let connected = kept.take().and_then(PsqlQuerySession::still_connected);
        let mut session = connected.unwrap_or_else(|| PsqlQuerySession::start(&self.target()));
        let answer = session.ask(statement)?;
        *kept = Some(session);
        Ok(answer)
    }

    /// What the statements answer, a line for each row, its columns with `|` between them.
    ///
    /// # Panics
    /// If one fails.
    pub fn run(&self, statements: &str) -> String {
        self.try_run(statements).unwrap_or_else(|error| panic!("{error}: {statements}"))
    }

    /// # Panics
    /// If no session waits for another one.
    pub fn wait_one_blocked(&self) {
        self.wait_blocked(1);
    }

    /// Polls, because the server sends no event.
    ///
    /// # Panics
    /// If not so many sessions wait for another one.
    pub fn wait_blocked(&self, sessions: usize) {
        const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        let until = Instant::now() + PATIENCE;
        while self.run(WAITING) != sessions.to_string() {
            assert!(Instant::now() < until, "not {sessions} wait");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
