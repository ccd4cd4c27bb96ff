//! Guards that share a database in front of one origin. Each guard has an address of its own.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use fencegate_testkit::scratch;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    ensemble::free_ports, gateway::Gateway, guard::GuardLaunch, guarded::GuardedSite, policy::TestPolicy,
};

/// A store in a database, and the file with the URL of the database.
pub struct SharedDatabase {
    home: TempDir,
    url_file: PathBuf,
}

/// The time after the last byte of a request at which its execution counts as over, if its end was not seen.
pub const MAX_EXECUTION: Duration = Duration::from_secs(2);

impl SharedDatabase {
    /// Makes the file with the URL of the database.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn new(url: &str) -> Self {
        let home = TempDir::new_in(scratch::folder()).expect("a folder");
        let url_file = home.path().join("url");
        let sharing = Self { home, url_file };
        sharing.set_url(url);
        sharing
    }

    /// Changes the URL in the file. Guards that start later use this URL.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn set_url(&self, url: &str) {
        fs::write(&self.url_file, format!("{url}\n")).expect("our own folder");
        fs::set_permissions(&self.url_file, fs::Permissions::from_mode(0o600)).expect("our own file");
    }

    pub fn url_file(&self) -> &Path {
        &self.url_file
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Gives a guard this store, an address that it keeps across restarts, and times short enough for tests.
    #[must_use]
    pub fn guard(&self, launch: GuardLaunch) -> GuardLaunch {
        let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)[0]));
        launch
            .with("/store", json!({"postgres": {"url_file": self.url_file.display().to_string()}}))
            .with("/listener/address", address.to_string())
            .with("/settle", "1s")
            .with("/max_execution", format!("{}ms", MAX_EXECUTION.as_millis()))
            .with("/upstream/response_timeout", "1s")
            .with("/send_within", "1s")
    }

    /// Makes the store with the first of the guards, and waits for the end of the store's first quarantine.
    pub async fn init_first(&self, launch: GuardLaunch, floor: u64) -> GuardLaunch {
        self.guard(launch).init_with_floor(floor).await
    }
}

impl GuardedSite {
    /// Two guards of this site that share a store.
    pub async fn launch_pair(&self, sharing: &SharedDatabase) -> [GuardLaunch; 2] {
        let launch = || {
            GuardLaunch::for_upstream(self.site.origin.open_listener("guard")).for_ensemble(&self.ensemble)
        };
        [sharing.init_first(launch(), self.floor).await, sharing.guard(launch())]
    }

    /// The policy of a gateway that reaches the service through any of these guards.
    pub fn policy_through(&self, name: &str, guards: &[SocketAddr]) -> TestPolicy {
        self.policy(name, guards)
            .with("/upstreams/ledger/response_timeout", "4s")
            .with("/upstreams/ledger/connect_timeout", "500ms")
            .with_cached_hold()
    }

    pub async fn gateway_through(&self, name: &str, guards: &[SocketAddr]) -> Gateway {
        Gateway::start(&self.policy_through(name, guards)).await
    }
}
