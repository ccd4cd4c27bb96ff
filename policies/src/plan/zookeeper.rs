//! The ZooKeeper settings: where the locks are, and the time before the end of a session at which nothing more is
//! sent.

use std::{path::PathBuf, time::Duration};

use super::ClientTls;
use crate::words::words;

/// The settings for ZooKeeper, which stores the locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZooKeeperSettings {
    /// The servers, each `host:port`; at least one.
    pub servers: Vec<String>,
    /// The path below which all nodes are: absolute, normalised, without a trailing slash. Default `/fencegate`.
    pub root: String,
    /// The session timeout to request. The server may grant another one, which is then used.
    pub session_timeout: Duration,
    /// The ensemble's `tickTime`.
    pub tick: Duration,
    /// The time before the end of the session from which nothing is sent; `None` for the default, see
    /// [`ZooKeeperSettings::margin`].
    pub safety_margin: Option<Duration>,
    /// The number of sessions that share the keys, 1 to [`ZooKeeperSettings::MOST_SESSIONS`]. Default 4.
    pub sessions: usize,
    pub acl: AclMode,
    /// The identities that may do everything with our nodes, in addition to ourselves: `scheme:id`, in the form that
    /// ZooKeeper uses.
    pub identities: Vec<String>,
    /// The TLS settings; `None` for plain text.
    pub tls: Option<ClientTls>,
    pub digest: Option<DigestCredential>,
}

/// A user and a password. ZooKeeper identifies the user by a digest of both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestCredential {
    pub user: String,
    pub password_file: PathBuf,
}

/// The clients that may write our nodes, and whether open nodes are reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AclMode {
    /// Every client that reaches ZooKeeper. Nodes that others may write are reported.
    #[default]
    Checked,
    /// Every client, intentionally: access is restricted by other means, so nothing is reported.
    Open,
    /// Only we, by our credentials, and the listed identities. Nodes that others may write are reported.
    Closed,
}

words! { AclMode { Checked = "checked", Open = "open", Closed = "closed" } }

impl ZooKeeperSettings {
    /// The most sessions. Each one costs the ensemble a heartbeat and a connection per gateway.
    pub const MOST_SESSIONS: usize = 64;

    /// The interval at which the session extends its deadline with a committed write: min(1 s, T / 6), where T is the
    /// negotiated timeout.
    pub fn heartbeat_interval(negotiated: Duration) -> Duration {
        (negotiated / 6).min(Duration::from_secs(1))
    }

    /// The least safety margin: a heartbeat may be late by its own period, and the server rounds an expiry by up to
    /// one tick.
    pub fn least_margin(negotiated: Duration, tick: Duration) -> Duration {
        Self::heartbeat_interval(negotiated) + tick
    }

    /// The safety margin for a negotiated timeout T: the configured one, else max(25 % of T, the least margin).
    pub fn margin(&self, negotiated: Duration) -> Duration {
        self.safety_margin.unwrap_or_else(|| (negotiated / 4).max(Self::least_margin(negotiated, self.tick)))
    }
}
