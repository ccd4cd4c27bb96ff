//! A site whose gateways reach the origin through a guard. All of them belong to one installation.

use std::net::SocketAddr;

use fencegate_testkit::scratch;
use serde_json::Value;

use crate::{
    ensemble::free_ports,
    gateway::{Gateway, command, write_policy},
    guard::{Guard, GuardLaunch},
    policy::TestPolicy,
    site::TestSite,
};

pub struct GuardedSite {
    pub site: TestSite,
    /// The installation of the site's gateways and guards.
    pub ensemble: String,
    /// The guards' floor: every token of the site is above it.
    pub floor: u64,
}

impl GuardedSite {
    pub async fn fresh() -> Self {
        Self::new(TestSite::fresh().await).await
    }

    /// Creates the installation at a site.
    ///
    /// # Panics
    /// If the installation cannot be created.
    pub async fn new(site: TestSite) -> Self {
        let home = scratch::temp_dir();
        let policy = write_policy(home.path(), &site.policy("operator").to_string());
        let policy = policy.display().to_string();
        run_operator(&["era", "init", "-c", &policy]).await;
        let shown = run_operator(&["era", "show", "--format", "json", "-c", &policy]).await;
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        let ensemble = shown["ensemble"].as_str().expect("a name").to_owned();
        Self { site, ensemble, floor: shown["floor"].as_u64().expect("a number") }
    }

    /// The launch of a guard of the installation. It keeps one address over all starts.
    pub async fn launch(&self) -> GuardLaunch {
        self.launch_of(&self.ensemble).await
    }

    /// The launch of a guard for tokens of the installation `ensemble`.
    pub async fn launch_of(&self, ensemble: &str) -> GuardLaunch {
        let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)[0]));
        let launch =
            GuardLaunch::for_upstream(self.site.origin.open_listener("guard")).for_ensemble(ensemble);
        launch.with("/listener/address", address.to_string()).init_with_floor(self.floor).await
    }

    pub async fn guard(&self) -> Guard {
        self.launch().await.start().await
    }

    /// The policy of a gateway whose guards are at these addresses.
    pub fn policy(&self, name: &str, guards: &[SocketAddr]) -> TestPolicy {
        let endpoints: Vec<String> = guards.iter().map(|guard| format!("http://{guard}")).collect();
        self.site
            .policy(name)
            .with("/upstreams/ledger/endpoints", endpoints)
            .with("/upstreams/ledger/fencing", "guard")
            .with("/upstreams/ledger/direct", true)
            .with("/upstreams/ledger/response_timeout", "16s")
            // Long enough for a lock whose session has to expire first.
            .with("/routes/0/fence/wait", "15s")
    }

    pub async fn gateway(&self, name: &str, guard: &Guard) -> Gateway {
        Gateway::start(&self.policy(name, &[guard.public])).await
    }
}

/// Runs a subcommand that must succeed, and returns its output.
///
/// # Panics
/// If the subcommand fails.
pub async fn run_operator(arguments: &[&str]) -> String {
    let output = command(arguments).await.expect("the binary starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Sets the time limits of a guard so short that a test can wait for them.
#[must_use]
pub fn with_short_times(launch: GuardLaunch) -> GuardLaunch {
    launch
        .with("/settle", "300ms")
        .with("/max_execution", "2s")
        .with("/upstream/response_timeout", "1s")
        .with("/send_within", "1s")
}
