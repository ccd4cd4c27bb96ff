//! One connection to the primary, with settings of its own, and checked for durability.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fencegate_process::clock::BootInstant;
use tokio::{sync::mpsc, task::AbortHandle, time::timeout};
use tokio_postgres::{AsyncMessage, Client, NoTls, Row, ToStatement, types::ToSql};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    config::{PostgresConfig, UnusableDatabaseError, error_text},
    error::PostgresError,
};

/// A session at the primary. Dropping it closes it.
pub(super) struct PostgresConnection {
    client: Client,
    driver: AbortHandle,
    warned: Arc<AtomicBool>,
    /// Notices of the server (`LISTEN`).
    pub(super) notices: mpsc::UnboundedReceiver<String>,
}

/// The purpose of a connection, as the server shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PostgresConnectionPurpose {
    Decisions,
    Heartbeat,
    Reads,
    Notifications,
    Setup,
}

/// The time limit for connecting, over all hosts together.
const CONNECT: Duration = Duration::from_secs(3);

/// After this time a reply counts as lost. It is shorter than a lease.
const ANSWER: Duration = Duration::from_secs(2);

/// The settings of a session. With these time limits the server gives up a statement before this process does,
/// so that its result still arrives.
const SETTINGS: &str = "
    SET default_transaction_isolation = 'read committed';
    SET statement_timeout = 1500;
    SET lock_timeout = 1000;
    SET idle_in_transaction_session_timeout = 5000;
    SET client_min_messages = warning;
    SET jit = off;
";

/// The routine of the server that warns when its wait for a standby is cancelled. The commit is then reported as
/// done.
const WAIT_FOR_STANDBY: &str = "SyncRepWaitForLSN";

/// Settings that may lose commits, in the order in which they are reported.
const DURABLE: [&str; 3] = ["fsync", "full_page_writes", "synchronous_commit"];

impl PostgresConnectionPurpose {
    fn as_str(self) -> &'static str {
        match self {
            Self::Decisions => "decides",
            Self::Heartbeat => "beats",
            Self::Reads => "reads",
            Self::Notifications => "listens",
            Self::Setup => "makes",
        }
    }

    /// The name of the connection at the server. It is short enough for the server, which cuts names at 63
    /// bytes.
    pub(super) fn application_name(self, instance: &str) -> String {
        let instance: String = instance.chars().take(36).collect();
        format!("fencegate {} {instance}", self.as_str())
    }
}

impl PostgresConnection {
    pub(super) async fn open(
        place: &PostgresConfig,
        purpose: PostgresConnectionPurpose,
        instance: &str,
    ) -> Result<Self, UnusableDatabaseError> {
        let late = || UnusableDatabaseError::Unreachable {
            place: place.to_string(),
            why: "no answer in time".into(),
        };
        timeout(CONNECT, Self::open_without_timeout(place, purpose, instance)).await.map_err(|_| late())?
    }

    async fn open_without_timeout(
        place: &PostgresConfig,
        purpose: PostgresConnectionPurpose,
        instance: &str,
    ) -> Result<Self, UnusableDatabaseError> {
        let failed = |error: tokio_postgres::Error| place.database_error(&error);
        let mut config = place.config.clone();
        config.application_name(purpose.application_name(instance));
        if purpose != PostgresConnectionPurpose::Setup {
            // The kernel gives up a statement at the same time as this process, also after the end of the
            // process. A connection for the setup has no such limit, because a server that creates tables may
            // read nothing for longer.
            config.tcp_user_timeout(ANSWER);
        }
        let warned = Arc::<AtomicBool>::default();
        let (tell, told) = mpsc::unbounded_channel();
        let (client, driver) = match &place.tls {
            None => {
                let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
                (client, tokio::spawn(drive(connection, tell, warned.clone())))
            }
            Some(tls) => {
                let tls = MakeRustlsConnect::new(tls.as_ref().clone());
                let (client, connection) = config.connect(tls).await.map_err(failed)?;
                (client, tokio::spawn(drive(connection, tell, warned.clone())))
            }
        };
        let made = Self { client, driver: driver.abort_handle(), warned, notices: told };
        made.client.batch_execute(SETTINGS).await.map_err(failed)?;
        if purpose == PostgresConnectionPurpose::Setup {
            made.client.batch_execute("SET statement_timeout = 0").await.map_err(failed)?;
        }
        made.ensure_durable_commits(place).await?;
        made.warned.store(false, Ordering::SeqCst);
        Ok(made)
    }

    /// Checks that acknowledged commits are on a disk: a guard that forgets an announced token would admit older
    /// ones.
    async fn ensure_durable_commits(&self, place: &PostgresConfig) -> Result<(), UnusableDatabaseError> {
        let failed = |error: tokio_postgres::Error| place.database_error(&error);
        for setting in DURABLE {
            let query = format!("SELECT current_setting('{setting}')");
            let value: String = self.client.query_one(&query, &[]).await.map_err(failed)?.get(0);
            if value == "off" {
                return Err(UnusableDatabaseError::NotDurable { place: place.to_string(), setting, value });
            }
            if setting == "synchronous_commit" {
                // `local` waits for no standby, so it becomes `on`. The setting is made for this session, so that a
                // later change at the server does not reach it.
                let value = if value == "local" { "on" } else { value.as_str() };
                let set = format!("SET synchronous_commit = '{value}'");
                self.client.batch_execute(&set).await.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Checks that a standby has each commit before it is acknowledged, if the config names several hosts,
    /// because one of them takes over from another. With one host nothing is checked: standbys cannot be told
    /// from other followers.
    pub(super) async fn check_replication(
        &self,
        place: &PostgresConfig,
    ) -> Result<(), UnusableDatabaseError> {
        if place.config.get_hosts().len() < 2 {
            return Ok(());
        }
        let query = "SELECT btrim(current_setting('synchronous_standby_names')) <> ''";
        let followed =
            self.client.query_one(query, &[]).await.map_err(|error| place.database_error(&error))?;
        if followed.get(0) {
            Ok(())
        } else {
            Err(UnusableDatabaseError::NotFollowed { place: place.to_string() })
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    /// The single row of a reply. The statement is committed when this returns: the library waits until the server is
    /// ready again, which is after the commit.
    ///
    /// # Errors
    /// Returns an error if the server has refused the statement, or if no reply came in time. Unless the server
    /// has refused it, it is not known whether the statement was committed, and the connection cannot be used
    /// any more.
    pub(super) async fn query_one(
        &self,
        query: &(impl ToStatement + ?Sized),
        with: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, StatementError> {
        let row = match timeout(ANSWER, self.client.query_one(query, with)).await {
            Err(_late) => return Err(StatementError::Lost("no answer in time".into())),
            Ok(Err(error)) => return Err(StatementError::from_error(&error)),
            Ok(Ok(row)) => row,
        };
        // If the wait for a standby is cancelled, the commit is reported as done although the standby may not have
        // it.
        if self.take_replication_warning() {
            return Err(StatementError::Lost("the server warned of what it did".into()));
        }
        Ok(row)
    }

    /// Whether the server has warned since the last call of this function, so that a reported commit may be
    /// missing at the standby.
    pub(super) fn take_replication_warning(&self) -> bool {
        self.warned.swap(false, Ordering::SeqCst)
    }

    /// The rows of a query that changes nothing.
    pub(super) async fn query(
        &self,
        query: &str,
        with: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StatementError> {
        match timeout(ANSWER, self.client.query(query, with)).await {
            Err(_late) => Err(StatementError::Lost("no answer in time".into())),
            Ok(Err(error)) => Err(StatementError::from_error(&error)),
            Ok(Ok(rows)) => Ok(rows),
        }
    }
}

/// The error of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StatementError {
    /// The statement may have been committed, or may be committed later.
    Lost(String),
    /// The statement was not committed. The server has reported this code and text.
    Refused { code: String, why: String },
}

impl StatementError {
    fn from_error(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            // With these severities the session ends, perhaps after it has committed.
            Some(refused) if !matches!(refused.severity(), "FATAL" | "PANIC") => {
                Self::Refused { code: refused.code().code().to_owned(), why: refused.message().to_owned() }
            }
            _ => Self::Lost(error_text(error)),
        }
    }

    /// Whether the same statement may succeed later: it met a conflict, or the server had no time or memory. Only an
    /// error in the statement itself is permanent.
    pub(super) fn is_transient(&self) -> bool {
        const OURS: [&str; 2] = ["22", "23"];
        match self {
            Self::Lost(_) => true,
            Self::Refused { code, .. } => !OURS.iter().any(|class| code.starts_with(class)),
        }
    }
}

impl StatementError {
    /// Whether a smaller statement may succeed: the server had no time for it (57014), no memory or no disk (53), or it
    /// went beyond a limit of the server (54).
    pub(super) fn is_overload(&self) -> bool {
        match self {
            Self::Lost(_) => false,
            Self::Refused { code, .. } => {
                code == "57014" || ["53", "54"].iter().any(|class| code.starts_with(class))
            }
        }
    }
}

impl From<StatementError> for PostgresError {
    fn from(unanswered: StatementError) -> Self {
        match unanswered {
            StatementError::Lost(why) => Self::Unreachable(why),
            StatementError::Refused { code, why } => Self::Unreachable(format!("{why} ({code})")),
        }
    }
}

impl Drop for PostgresConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Drives the connection for as long as it lasts. A warning is recorded before the reply that follows it is
/// forwarded.
async fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    tell: mpsc::UnboundedSender<String>,
    warned: Arc<AtomicBool>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            AsyncMessage::Notice(notice) => {
                tracing::warn!(severity = notice.severity(), said = notice.message(), "guard.store_warns");
                // The text of a warning may be in any language, but the name of the server's routine is not translated.
                if notice.routine().is_none_or(|routine| routine == WAIT_FOR_STANDBY) {
                    warned.store(true, Ordering::SeqCst);
                }
            }
            AsyncMessage::Notification(told) => {
                // Only the connection that listens has a receiver for notices.
                drop(tell.send(told.payload().to_owned()));
            }
            _ => {}
        }
    }
}

/// Milliseconds, rounded up, for times that must not end early.
pub(super) fn millis(time: Duration) -> i64 {
    let whole = time.as_millis() + u128::from(!time.subsec_nanos().is_multiple_of(1_000_000));
    i64::try_from(whole).unwrap_or(i64::MAX / 4)
}

/// The instant `left` milliseconds after `now`; a negative number gives `now`.
pub(super) fn after_millis(now: BootInstant, left: i64) -> BootInstant {
    now + Duration::from_millis(u64::try_from(left).unwrap_or_default())
}
