//! The addresses of all processes, and their configurations.

use std::{
    fs::{self, Permissions},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use fencegate_policies::{
    file,
    plan::{GatewayPlan, GuardPlan},
};
use fencegate_tests::policy::TestPolicy;
use serde_json::{Value, json};

use crate::plan::ROOT;

const fn host_address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

pub(super) const GATEWAYS: [IpAddr; 2] = [host_address(1), host_address(2)];
pub(super) const GUARD: IpAddr = host_address(3);
pub(super) const UPSTREAM: IpAddr = host_address(4);
pub(super) const CLIENTS: IpAddr = host_address(9);

/// The port of every main listener. At the upstream it is the port that the guard uses.
pub(super) const PORT: u16 = 80;
/// The port of a gateway's listener for other gateways. At the upstream it is the port for requests without a guard.
pub(super) const OTHER_PORT: u16 = 81;

/// The session timeout of every gateway.
pub(super) const T: Duration = Duration::from_secs(2);
/// The longest time that the upstream works, and the longest time that a link is blocked. Their sum is below
/// `max_execution`.
pub(super) const LONGEST_WORK: Duration = Duration::from_millis(5000);
pub(super) const LONGEST_BLOCK: Duration = Duration::from_millis(2500);
/// The guard's `max_execution` and `send_within`.
pub(super) const MAX_EXECUTION: Duration = Duration::from_secs(8);
pub(super) const SEND_WITHIN: Duration = Duration::from_secs(2);
/// The maximum difference between the wall clocks of guard and filter.
pub(super) const CLOCK_ERROR: Duration = Duration::from_millis(300);
/// The longest execution that ends within `MAX_EXECUTION` if it begins within `SEND_WITHIN`.
pub(super) const LONGEST_EXECUTION: Duration = MAX_EXECUTION.saturating_sub(SEND_WITHIN);
/// The time limit for responses of every upstream, guards included. After a change of keys, a gateway waits as long
/// for a request of unknown outcome. A guard that was killed waits less for the keys in use: `max_execution` and
/// `send_within`.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(24);

/// The key template of all gateways, which a reload changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyNaming {
    Account,
    Konto,
}

impl KeyNaming {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Account => Self::Konto,
            Self::Konto => Self::Account,
        }
    }

    fn key_prefix(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Konto => "konto",
        }
    }
}

fn route(name: &str, path: &str, upstream: &str, fence: Value) -> Value {
    json!({"name": name, "upstream": upstream, "match": {"methods": ["POST"], "path": path}, "fence": fence})
}

/// The files of the ticket secret and of the bearer tokens of lease clients. Their content has a fixed length, so
/// that every run is alike.
pub(super) struct SecretFiles {
    folder: PathBuf,
}

/// The token of the one client that may hold leases.
pub(super) const BEARER: &str = "bearer-0123456789abcdef0123456789";

impl SecretFiles {
    /// Writes the files.
    ///
    /// # Panics
    /// If the files cannot be written.
    pub(super) fn create(folder: &Path) -> Self {
        let secrets = Self { folder: folder.to_owned() };
        for (file, text) in
            [(secrets.tickets(), "ticket-0123456789abcdef0123456789"), (secrets.bearer(), BEARER)]
        {
            fs::write(&file, text).expect("a folder of ours");
            fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("a file of ours");
        }
        secrets
    }

    pub(super) fn tickets(&self) -> PathBuf {
        self.folder.join("tickets")
    }

    fn bearer(&self) -> PathBuf {
        self.folder.join("bearer")
    }
}

/// The policy of the gateway with this number.
pub(super) fn policy(number: usize, naming: KeyNaming, secrets: &SecretFiles) -> TestPolicy {
    let address = GATEWAYS[number];
    let word = naming.key_prefix();
    let nowhere = SocketAddr::new(host_address(200), 2181);
    let key = |of: &str| format!("{word}/{{path.{of}}}");
    let alone = |also: Value| {
        let mut fence = json!({"key": key("a"), "wait": "12s"});
        for (name, value) in also.as_object().expect("a mapping") {
            fence[name] = value.clone();
        }
        fence
    };
    let calling = json!({"hold": {"mode": "cached"}, "nested": "allow"});
    TestPolicy::new(&format!("gw-{number}"), nowhere, ROOT, SocketAddr::new(GUARD, PORT))
        .with("/listeners/public/address", SocketAddr::new(address, PORT).to_string())
        .with("/peer", json!({"address": SocketAddr::new(address, OTHER_PORT).to_string()}))
        .with("/zookeeper/sessions", 1)
        .with("/upstreams/ledger/fencing", "guard")
        .with("/upstreams/ledger/direct", true)
        .with("/upstreams/ledger/response_timeout", format!("{}s", RESPONSE_TIMEOUT.as_secs()))
        .with("/tickets", json!({"secret_file": secrets.tickets()}))
        .with(
            "/leases",
            json!({"max_wait": "20s", "principals": [
                {"name": "client", "bearer": {"file": secrets.bearer()}, "keys": ["account/*", "konto/*"]},
            ]}),
        )
        .with(
            "/upstreams/bare",
            json!({
                "endpoints": [format!("http://{}", SocketAddr::new(UPSTREAM, OTHER_PORT))],
                "fencing": "upstream",
                "response_timeout": format!("{}s", RESPONSE_TIMEOUT.as_secs()),
            }),
        )
        .with(
            "/routes",
            json!([
                route("pay", "/pay/{a}", "ledger", alone(calling.clone())),
                route("call", "/call/{a}", "ledger", alone(calling)),
                route("held", "/held/{a}", "ledger", alone(json!({"lease": "required"}))),
                route("strict", "/strict/{a}", "ledger", alone(json!({}))),
                route(
                    "sent",
                    "/sent/{a}",
                    "ledger",
                    alone(json!({"hold": {"mode": "cached"}, "forward": "holder"}))
                ),
                route("look", "/look/{a}", "ledger", alone(json!({"mode": "shared"}))),
                route(
                    "move",
                    "/move/{a}/{b}",
                    "ledger",
                    json!({"keys": [key("a"), key("b")], "wait": "12s"})
                ),
                route("once", "/once/{a}", "ledger", alone(json!({"once": {}}))),
                route(
                    "shop",
                    "/shop/{a}",
                    "ledger",
                    alone(json!({"once": {"principal": "{header.x-shop}"}}))
                ),
                route("bare", "/bare/{a}", "bare", json!({"key": "bare/{path.a}", "wait": "12s"})),
            ]),
        )
}

pub(super) fn gateway(policy: &TestPolicy) -> GatewayPlan {
    let loaded = file::load(&policy.to_string());
    loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}

/// # Panics
/// Never: the policy is valid.
pub(super) fn guard(store: &Path, secrets: &SecretFiles) -> GuardPlan {
    let probe = json!({"path": "/probe/{operation}", "done": [200], "not_done": [404], "closes": true, "timeout": "1s"});
    let policy = TestPolicy::for_guard(SocketAddr::new(UPSTREAM, PORT), store)
        .with("/listener/address", SocketAddr::new(GUARD, PORT).to_string())
        .with("/upstream/response_timeout", "6s")
        .with("/settle", "9s")
        .with("/max_execution", format!("{}s", MAX_EXECUTION.as_secs()))
        .with("/send_within", format!("{}s", SEND_WITHIN.as_secs()))
        .with("/tickets", json!({"secret_file": secrets.tickets()}))
        .with("/journal", json!({"probe": probe}));
    let loaded = file::load_guard(&policy.to_string());
    loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}
