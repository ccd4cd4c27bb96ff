//! The address of the database, and why it may be unfit for a store.

use std::{fmt, sync::Arc, time::Duration};

use fencegate_process::command_hint;
use tokio_postgres::{
    Config,
    config::{Host, SslMode, TargetSessionAttrs},
};

/// A database at one or several hosts, of which one is the primary, and a schema in it.
#[derive(Clone)]
pub struct PostgresConfig {
    pub(super) config: Config,
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
    pub(super) schema: Arc<str>,
    shown: Arc<str>,
}

/// The database cannot be this guard's store.
#[derive(Debug, thiserror::Error)]
pub enum UnusableDatabaseError {
    #[error("the URL of the database cannot be read: {0}")]
    Url(String),
    #[error(
        "{place} has no store of a guard; make it once with `{}` (`fencegate era show -c POLICY` prints both)",
        command_hint::command_line(
            command_hint::CommandHintTarget::Guard,
            "guard --init --floor E --ensemble UUID"
        )
    )]
    Missing { place: String },
    #[error("{place} has a store of a guard already")]
    Exists { place: String },
    #[error(
        "{place} has an unfinished copy of the store in {from}: run `{}` again; or, if the guard went on with \
         that file, drop the schema",
        command_hint::command_line(command_hint::CommandHintTarget::Guard, &format!("guard migrate --from redb:{from} --to postgres"))
    )]
    Unfinished { place: String, from: String },
    #[error("{place} is of format {found}, this build reads up to {reads}; upgrade the guard")]
    Newer { place: String, found: u32, reads: u32 },
    /// `setting` is `fsync`, `full_page_writes` or `synchronous_commit`.
    #[error(
        "{place} may lose what it has acknowledged: `{setting}` is `{value}` there; set it to `on` for this database"
    )]
    NotDurable { place: String, setting: &'static str, value: String },
    #[error(
        "{place} may lose what it has acknowledged when another of its hosts takes over: `synchronous_standby_names` is \
         empty there; name the standby in it, or write one host only"
    )]
    NotFollowed { place: String },
    #[error("{place} cannot be reached: {why}")]
    Unreachable { place: String, why: String },
    #[error("{place}: {why}")]
    Failed { place: String, why: String },
}

/// The default schema.
pub const SCHEMA: &str = "fencegate";

/// A host that does not answer within this time is skipped for the next one.
const CONNECT: Duration = Duration::from_secs(1);

/// A connection on which nothing arrives for this long is probed, so that a connection whose server has vanished
/// is given up before other guards declare this guard dead.
const IDLE: Duration = Duration::from_secs(1);

/// The interval of the probes of an idle connection.
const PROBE: Duration = Duration::from_secs(1);

/// After this many probes without an answer the connection is over.
const PROBES: u32 = 2;

impl PostgresConfig {
    /// Reads a URL in libpq's form (`postgresql://user@host1,host2/database`). `tls`: encrypt connections, and check
    /// the server's certificate. The text of a config never shows the password.
    ///
    /// # Errors
    /// Returns an error if the URL is malformed, or asks for TLS although `tls` is `None`.
    pub fn parse(
        url: &str,
        tls: Option<Arc<rustls::ClientConfig>>,
        schema: &str,
    ) -> Result<Self, UnusableDatabaseError> {
        let bad = |reason: String| UnusableDatabaseError::Url(reason);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if schema.is_empty() || schema.len() > 63 || !schema.chars().all(plain) {
            return Err(bad(format!("`{schema}` is no plain name of a schema: a-z, 0-9 and _")));
        }
        let mut config: Config = url.trim().parse().map_err(|error| bad(error_text(&error)))?;
        if config.get_hosts().is_empty() {
            return Err(bad("it names no host".into()));
        }
        match (&tls, config.get_ssl_mode()) {
            (Some(_), _) => config.ssl_mode(SslMode::Require),
            (None, SslMode::Require) => return Err(bad("it asks for TLS, and `tls` is not set".into())),
            (None, _) => config.ssl_mode(SslMode::Disable),
        };
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.connect_timeout(CONNECT);
        config.keepalives_idle(IDLE);
        config.keepalives_interval(PROBE);
        config.keepalives_retries(PROBES);
        let shown = display_text(&config, schema).into();
        Ok(Self { config, tls, schema: schema.into(), shown })
    }

    pub(super) fn database_error(&self, error: &tokio_postgres::Error) -> UnusableDatabaseError {
        let place = self.to_string();
        let why = error_text(error);
        match error.as_db_error() {
            Some(_) => UnusableDatabaseError::Failed { place, why },
            None => UnusableDatabaseError::Unreachable { place, why },
        }
    }
}

/// The text of an error with its causes, which the library leaves out.
pub(super) fn error_text(error: &tokio_postgres::Error) -> String {
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        said = format!("{said}: {deeper}");
        cause = deeper.source();
    }
    said
}

fn display_text(config: &Config, schema: &str) -> String {
    let ports = config.get_ports();
    let host = |(at, host): (usize, &Host)| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(folder) => format!("{}:{port}", folder.display()),
        }
    };
    let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgresql://{}/{database} (schema {schema})", hosts.join(","))
}

/// Hosts, database and schema; neither user nor password.
impl fmt::Display for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The configuration of a database shows hosts, database and schema, and neither it nor its errors show a secret.
    #[test]
    fn database_address_shows_no_secret() {
        let url = "postgresql://me:secret@one:5433,two:5434/shop";
        let place = PostgresConfig::parse(url, None, SCHEMA).expect("a URL");
        assert_eq!(format!("{place:?}"), "postgresql://one:5433,two:5434/shop (schema fencegate)");
        for (bad, schema, expected) in [
            ("nonsense", SCHEMA, "the URL of the database cannot be read"),
            ("postgresql:///shop", SCHEMA, "it names no host"),
            ("postgresql://one/shop?sslmode=require", SCHEMA, "`tls` is not set"),
            (url, "Up; DROP", "no plain name of a schema"),
        ] {
            let error = PostgresConfig::parse(bad, None, schema).expect_err(bad).to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{bad}: {error}");
        }
    }
}
