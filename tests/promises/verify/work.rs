//! What a service does with a request, each time with another fault.

use std::{
    collections::HashMap,
    fs::OpenOptions,
    future::pending,
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use tempfile::TempDir;
use tokio::task::{AbortHandle, spawn_blocking};

use super::fault::ServiceFault;

pub(super) struct FaultyServiceState {
    fault: ServiceFault,
    file: PathBuf,
    /// Keeps the folder until the last request has ended.
    _home: Arc<TempDir>,
    work: Duration,
    /// A lock that excludes requests of this process only.
    one_at_a_time: Mutex<()>,
    cache: Mutex<HashMap<String, String>>,
    connections: Mutex<Vec<AbortHandle>>,
    /// The number of kills. Work that began before the last kill has no further effect.
    killed: AtomicU64,
    /// Rows and watermarks of admitted requests that have not had their effect yet.
    under_way: Mutex<Vec<(String, String)>>,
    /// Signalled when an admitted request has had its effect.
    through: Condvar,
    began: Instant,
}

/// A request, as read from its fields.
pub(super) struct WorkRequest {
    pub(super) key: String,
    /// The row of its watermark.
    pub(super) row: String,
    pub(super) mark: Option<String>,
    pub(super) shared: bool,
    /// The name of its operation, if it has one.
    pub(super) operation: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkResult {
    Done,
    Stale,
    /// The operation was done, or its name is closed.
    Closed,
}

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS marks (key TEXT PRIMARY KEY, write TEXT NOT NULL, read TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS operations (name TEXT PRIMARY KEY, token TEXT NOT NULL, done INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS effects (key TEXT NOT NULL) STRICT;";

pub(super) fn create_tables(home: &TempDir) {
    connect(&database(home)).execute_batch(SCHEMA).expect("tables");
}

fn database(home: &TempDir) -> PathBuf {
    home.path().join("service.sqlite")
}

fn connect(file: &Path) -> Connection {
    let connection = Connection::open(file).expect("a database");
    connection.busy_timeout(Duration::from_secs(20)).expect("SQLite takes it");
    connection.pragma_update(None, "journal_mode", "WAL").expect("SQLite takes it");
    connection.pragma_update(None, "synchronous", "OFF").expect("SQLite takes it");
    connection
}

impl FaultyServiceState {
    pub(super) fn new(fault: ServiceFault, home: Arc<TempDir>) -> Self {
        Self {
            fault,
            file: database(&home),
            _home: home,
            work: Duration::from_millis(4),
            one_at_a_time: Mutex::new(()),
            cache: Mutex::default(),
            connections: Mutex::default(),
            killed: AtomicU64::new(0),
            under_way: Mutex::default(),
            through: Condvar::new(),
            began: Instant::now(),
        }
    }

    pub(super) fn fault(&self) -> ServiceFault {
        self.fault
    }

    pub(super) fn track_connection(&self, connection: AbortHandle) {
        locked(&self.connections).push(connection);
    }

    /// Cuts all connections, also the one of this request, and clears the memory.
    pub(super) fn crash(&self) {
        self.killed.fetch_add(1, SeqCst);
        locked(&self.cache).clear();
        for connection in locked(&self.connections).drain(..) {
            connection.abort();
        }
    }

    pub(super) async fn effects(&self, key: String) -> i64 {
        let file = self.file.clone();
        let count = move || {
            let count = "SELECT count(*) FROM effects WHERE key = ?1";
            connect(&file).query_row(count, [key], |row| row.get(0)).expect("a table")
        };
        spawn_blocking(count).await.expect("no panic")
    }

    /// True if the operation was done. Otherwise its name is closed for this token and all older ones.
    pub(super) async fn probe_operation(self: &Arc<Self>, name: String, token: String) -> bool {
        let service = self.clone();
        spawn_blocking(move || service.close_name(&name, &token)).await.expect("no panic")
    }

    fn close_name(&self, name: &str, token: &str) -> bool {
        let connection = connect(&self.file);
        if matches!(self.fault, ServiceFault::OpenNames | ServiceFault::NamesInMemory) {
            if self.fault == ServiceFault::NamesInMemory {
                let mut closed = locked(&self.cache);
                let newest = closed.entry(name.to_owned()).or_default();
                *newest = token.to_owned().max(std::mem::take(newest));
            }
            let done = "SELECT done FROM operations WHERE name = ?1";
            let done = connection.query_row(done, [name], |row| row.get(0)).optional();
            return done.expect("a table").unwrap_or(false);
        }
        let kept = match self.fault {
            ServiceFault::LowersNames => "excluded.token",
            _ => "max(operations.token, excluded.token)",
        };
        let close = format!(
            "INSERT INTO operations VALUES (?1, ?2, false) ON CONFLICT (name) DO UPDATE SET token = {kept} RETURNING done"
        );
        connection.query_row(&close, [name, token], |row| row.get(0)).expect("a table")
    }

    /// Claims the name in the transaction of the effect. False if the name is closed.
    fn claim_name(&self, transaction: &Connection, name: &str, token: &str) -> bool {
        if self.fault == ServiceFault::NamesInMemory
            && locked(&self.cache).get(name).is_some_and(|closed| *token <= **closed)
        {
            return false;
        }
        let greater = if self.fault == ServiceFault::ClosesForGood {
            "false"
        } else {
            "excluded.token > operations.token"
        };
        let open = format!(
            "INSERT INTO operations VALUES (?1, ?2, true) ON CONFLICT (name) DO
            UPDATE SET token = excluded.token, done = true WHERE NOT operations.done AND {greater}"
        );
        transaction.execute(&open, [name, token]).expect("a table") > 0
    }

    pub(super) async fn check_newer(self: Arc<Self>, ask: &WorkRequest) -> WorkResult {
        let key = ask.row.clone();
        let mark = ask.mark.clone().unwrap_or_default();
        let look = move || {
            if is_newer(&connect(&self.file), &key, &mark) { WorkResult::Done } else { WorkResult::Stale }
        };
        spawn_blocking(look).await.expect("no panic")
    }

    /// Executes a request. A request at work during a crash is never answered, because its connection may be cut only
    /// later.
    pub(super) async fn execute_request(self: Arc<Self>, ask: WorkRequest) -> WorkResult {
        let service = self.clone();
        let life = self.killed.load(SeqCst);
        let word = spawn_blocking(move || service.execute(&ask, life)).await.expect("no panic");
        if self.killed.load(SeqCst) != life {
            pending::<()>().await;
        }
        word
    }

    /// Executes a request. `life`: the number of kills when it began. With a later number at its end it is not
    /// committed.
    fn execute(&self, ask: &WorkRequest, life: u64) -> WorkResult {
        let mut connection = connect(&self.file);
        let Some(mark) = ask.mark.as_deref() else {
            write_effect(&connection, &ask.key);
            return WorkResult::Done;
        };
        if self.fault == ServiceFault::Forgets {
            self.forget_old(&connection, &ask.row);
        }
        match self.fault {
            ServiceFault::CheckOutside
            | ServiceFault::CheckOutsideNewestStays
            | ServiceFault::CheckAtHead => self.check_then_do(&connection, ask, mark),
            ServiceFault::ProcessLock => {
                let _alone = locked(&self.one_at_a_time);
                self.check_then_do(&connection, ask, mark)
            }
            ServiceFault::CachedMark => self.check_in_cache(&connection, &ask.key, mark),
            ServiceFault::InMemory => self.check_in_memory(&connection, &ask.key, mark),
            ServiceFault::IgnoresReads if ask.shared => WorkResult::Done,
            ServiceFault::ClaimsApart => self.claim_then_do(&connection, ask, mark),
            ServiceFault::MarkAfterwards | ServiceFault::MarkBefore => {
                self.execute_in_two_transactions(&connection, ask, mark, life)
            }
            fault => {
                let transaction =
                    connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("a lock");
                let word = if raise_mark(&transaction, fault, ask, mark) {
                    WorkResult::Done
                } else {
                    WorkResult::Stale
                };
                let name = ask.operation.as_deref().filter(|_| word == WorkResult::Done);
                if name.is_some_and(|name| !self.claim_name(&transaction, name, mark)) {
                    return WorkResult::Closed;
                }
                thread::sleep(self.work);
                match (word, fault) {
                    (WorkResult::Done, ServiceFault::SaysAndDoesNot) => return word,
                    (WorkResult::Stale, ServiceFault::RefusesAndDoes) => write_effect(&transaction, &ask.key),
                    (WorkResult::Stale | WorkResult::Closed, _) => return word,
                    (WorkResult::Done, _) if ask.shared => {}
                    (WorkResult::Done, _) => write_effect(&transaction, &ask.key),
                }
                if self.killed.load(SeqCst) == life {
                    transaction.commit().expect("nobody is before us");
                }
                word
            }
        }
    }

    fn check_then_do(&self, connection: &Connection, ask: &WorkRequest, mark: &str) -> WorkResult {
        if self.fault != ServiceFault::CheckAtHead && !is_newer(connection, &ask.row, mark) {
            return WorkResult::Stale;
        }
        self.delay_effect(ask, mark, || self.write_mark_and_effect(connection, ask, mark));
        WorkResult::Done
    }

    fn write_mark_and_effect(&self, connection: &Connection, ask: &WorkRequest, mark: &str) {
        let set = match self.fault {
            ServiceFault::CheckOutsideNewestStays | ServiceFault::CheckAtHead => "max(write, excluded.write)",
            _ => "excluded.write",
        };
        let set =
            format!("INSERT INTO marks VALUES (?1, ?2, '') ON CONFLICT (key) DO UPDATE SET write = {set}");
        connection.execute(&set, [&ask.row, mark]).expect("a table");
        write_effect(connection, &ask.key);
    }

    /// Delays the effect after the admission, and an overtaken request always until after the newer one, so that the
    /// speed of the machine does not decide the order.
    fn delay_effect(&self, ask: &WorkRequest, mark: &str, effect: impl FnOnce()) {
        locked(&self.under_way).push((ask.row.clone(), mark.to_owned()));
        thread::sleep(WINDOW);
        let mut overtaken = false;
        let newer = |(row, other): &(String, String)| *row == ask.row && **other > *mark;
        let mut under_way = locked(&self.under_way);
        while under_way.iter().any(newer) {
            overtaken = true;
            under_way = self.through.wait(under_way).unwrap_or_else(PoisonError::into_inner);
        }
        drop(under_way);
        if overtaken {
            // The newer request is answered first, so that its effect can be checked.
            thread::sleep(WINDOW);
        }
        effect();
        let mut under_way = locked(&self.under_way);
        let ours = under_way.iter().position(|(row, other)| *row == ask.row && **other == *mark);
        under_way.swap_remove(ours.expect("put there above"));
        self.through.notify_all();
    }

    fn forget_old(&self, connection: &Connection, row: &str) {
        let now = self.began.elapsed().as_millis();
        let before = locked(&self.cache).insert(row.to_owned(), now.to_string());
        let before = before.and_then(|before| before.parse().ok()).unwrap_or(now);
        if now - before > 1000 {
            connection.execute("DELETE FROM marks WHERE key = ?1", [row]).expect("a table");
        }
    }

    fn claim_then_do(&self, connection: &Connection, ask: &WorkRequest, mark: &str) -> WorkResult {
        if !raise_mark(connection, ServiceFault::None, ask, mark) {
            return WorkResult::Stale;
        }
        if ask.shared {
            return WorkResult::Done;
        }
        self.delay_effect(ask, mark, || write_effect(connection, &ask.key));
        WorkResult::Done
    }

    fn check_in_cache(&self, connection: &Connection, key: &str, mark: &str) -> WorkResult {
        let mut cache = locked(&self.cache);
        let known = cache.get(key).cloned().or_else(|| stored_mark(connection, key));
        if known.is_some_and(|known| *mark <= *known) {
            return WorkResult::Stale;
        }
        cache.insert(key.to_owned(), mark.to_owned());
        let set =
            "INSERT INTO marks VALUES (?1, ?2, '') ON CONFLICT (key) DO UPDATE SET write = excluded.write";
        connection.execute(set, [key, mark]).expect("a table");
        write_effect(connection, key);
        WorkResult::Done
    }

    fn check_in_memory(&self, connection: &Connection, key: &str, mark: &str) -> WorkResult {
        let mut cache = locked(&self.cache);
        if cache.get(key).is_some_and(|known| *mark <= **known) {
            return WorkResult::Stale;
        }
        cache.insert(key.to_owned(), mark.to_owned());
        write_effect(connection, key);
        WorkResult::Done
    }

    /// Executes a request in two transactions under a lock of this process. A crash between them leaves only the first.
    fn execute_in_two_transactions(
        &self,
        connection: &Connection,
        ask: &WorkRequest,
        mark: &str,
        life: u64,
    ) -> WorkResult {
        let _alone = locked(&self.one_at_a_time);
        if !is_newer(connection, &ask.row, mark) {
            return WorkResult::Stale;
        }
        let raise = || raise_mark(connection, ServiceFault::None, ask, mark);
        if self.fault == ServiceFault::MarkBefore {
            raise();
        } else {
            write_effect(connection, &ask.key);
        }
        thread::sleep(self.work);
        match self.fault {
            _ if self.killed.load(SeqCst) != life => {}
            ServiceFault::MarkBefore => write_effect(connection, &ask.key),
            _ => {
                raise();
            }
        }
        WorkResult::Done
    }
}

/// A time that is long compared with the rest of a request, also on a busy machine.
const WINDOW: Duration = Duration::from_millis(20);

/// Locks the mutex, also after a panic, which ends the test in any case.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn raise_mark(connection: &Connection, fault: ServiceFault, ask: &WorkRequest, mark: &str) -> bool {
    let made = "INSERT INTO marks VALUES (?1, ?2, '') ON CONFLICT (key) DO";
    let statement = match fault {
        ServiceFault::NotStrict => {
            format!("{made} UPDATE SET write = excluded.write WHERE excluded.write >= write")
        }
        ServiceFault::NoUpsert | ServiceFault::NoRowPasses => {
            "UPDATE marks SET write = ?2 WHERE key = ?1 AND ?2 > write".into()
        }
        _ if ask.shared => "INSERT INTO marks VALUES (?1, '', ?2) ON CONFLICT (key) DO
            UPDATE SET read = max(read, excluded.read) WHERE excluded.read > write"
            .into(),
        ServiceFault::TextNumbers | ServiceFault::Narrow | ServiceFault::Float => {
            format!("{made} UPDATE SET write = excluded.write WHERE excluded.write >= write")
        }
        _ => format!(
            "{made} UPDATE SET write = excluded.write WHERE excluded.write > write AND excluded.write > read"
        ),
    };
    let rows = connection.execute(&statement, params![ask.row, mark]).expect("a table");
    rows > 0 || (fault == ServiceFault::NoRowPasses && stored_mark(connection, &ask.row).is_none())
}

fn stored_mark(connection: &Connection, key: &str) -> Option<String> {
    let asked = connection.query_row("SELECT write FROM marks WHERE key = ?1", [key], |row| row.get(0));
    asked.optional().expect("a table")
}

fn is_newer(connection: &Connection, key: &str, mark: &str) -> bool {
    stored_mark(connection, key).is_none_or(|known| *mark > *known)
}

/// Writes the effect into the database, and as a line of a file.
fn write_effect(connection: &Connection, key: &str) {
    connection.execute("INSERT INTO effects VALUES (?1)", [key]).expect("a table");
    let file = Path::new(connection.path().expect("a file")).with_file_name("effects");
    let mut file = OpenOptions::new().append(true).create(true).open(file).expect("our own folder");
    writeln!(file, "done {key}").expect("our own folder");
}
