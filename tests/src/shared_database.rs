//! Guards that share a database, each at an address of its own, before one origin.

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

/// A store in a database, and the file with its address.
pub struct SharedDatabase {
    home: TempDir,
    url_file: PathBuf,
}

/// After this time from its last byte, an execution counts as over whose end was not seen.
pub const MAX_EXECUTION: Duration = Duration::from_secs(2);

impl SharedDatabase {
    /// # Panics
    /// If the file cannot be written.
    pub fn new(url: &str) -> Self {
        let home = TempDir::new_in(scratch::folder()).expect("a folder");
        let url_file = home.path().join("url");
        let sharing = Self { home, url_file };
        sharing.set_url(url);
        sharing
    }

    /// What starts from now on finds the database here.
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

    /// The same guard with this store, at an address that it keeps. Its times are some that a test can wait for.
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

    /// The first of them, which makes the store and waits its quarantine out.
    pub async fn init_first(&self, launch: GuardLaunch, floor: u64) -> GuardLaunch {
        self.guard(launch).init_with_floor(floor).await
    }
}

impl GuardedSite {
    /// Two of its guards that share a store.
    pub async fn launch_pair(&self, sharing: &SharedDatabase) -> [GuardLaunch; 2] {
        let launch = || {
            GuardLaunch::for_upstream(self.site.origin.open_listener("guard")).for_ensemble(&self.ensemble)
        };
        [sharing.init_first(launch(), self.floor).await, sharing.guard(launch())]
    }

    /// A gateway that reaches the service through any of these.
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
