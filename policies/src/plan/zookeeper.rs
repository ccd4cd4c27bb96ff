//! Where the locks live, and how long before the end of a session nothing is sent any more.

use std::{path::PathBuf, time::Duration};

use super::ClientTls;
use crate::words::words;

/// Where the locks live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZooKeeperSettings {
    /// `host:port`, at least one.
    pub servers: Vec<String>,
    /// Absolute, normalised, without a trailing slash; `/fencegate` by default.
    pub root: String,
    /// The requested timeout. The negotiated value counts.
    pub session_timeout: Duration,
    /// The ensemble's `tickTime`.
    pub tick: Duration,
    /// How long before the end of the session nothing is sent any more; `None` for the default, see
    /// [`ZooKeeperSettings::margin`].
    pub safety_margin: Option<Duration>,
    /// The number of sessions that share the keys, 1 to [`ZooKeeperSettings::MOST_SESSIONS`]. Default 4.
    pub sessions: usize,
    pub acl: AclMode,
    /// Identities that may do everything with our nodes, beside ourselves: `scheme:id`, in the form that ZooKeeper
    /// uses.
    pub identities: Vec<String>,
    /// `None`: plain text.
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
    /// Every client that reaches ZooKeeper. Open nodes are reported.
    #[default]
    Checked,
    /// Every client, on purpose: access is restricted by other means. Nothing is reported.
    Open,
    /// We, by our credentials, and the listed identities. Nodes that others may write are reported.
    Closed,
}

words! { AclMode { Checked = "checked", Open = "open", Closed = "closed" } }

impl ZooKeeperSettings {
    /// Each session costs the ensemble a heartbeat and a connection per gateway.
    pub const MOST_SESSIONS: usize = 64;

    /// How often the session extends its deadline with a committed write: min(1 s, T / 6), T being the negotiated
    /// timeout.
    pub fn heartbeat(negotiated: Duration) -> Duration {
        (negotiated / 6).min(Duration::from_secs(1))
    }

    /// The least safety margin: a heartbeat may be late by its own period, and the server rounds an expiry by up to a
    /// tick.
    pub fn least_margin(negotiated: Duration, tick: Duration) -> Duration {
        Self::heartbeat(negotiated) + tick
    }

    /// The safety margin in force for a negotiated timeout: the configured one, else max(25 % of T, the least
    /// margin).
    pub fn margin(&self, negotiated: Duration) -> Duration {
        self.safety_margin.unwrap_or_else(|| (negotiated / 4).max(Self::least_margin(negotiated, self.tick)))
    }
}
