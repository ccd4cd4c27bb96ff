//! The policy files of the demo.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::options::DemoFenceLevel;

/// The session timeout that the private ZooKeeper grants. A holder that is silent for so long has lost its locks.
pub(super) const SESSION: Duration = Duration::from_secs(2);
/// How long the guard counts an execution as running.
const EXECUTION: Duration = Duration::from_secs(2);
const SENDING: Duration = Duration::from_secs(1);
/// A new guard admits nothing for this long.
pub(super) const QUARANTINE: Duration = EXECUTION.saturating_add(SENDING);
/// The tick of the private ZooKeeper.
pub(super) const TICK: Duration = Duration::from_millis(200);

/// The policy of one gateway. `upstream` is the address of the ledger or its guard for this gateway. It may be
/// the relay's.
pub(super) fn gateway_policy(
    name: &str,
    level: DemoFenceLevel,
    zookeeper: SocketAddr,
    upstream: SocketAddr,
    signing_key: Option<&Path>,
) -> String {
    let (fencing, response_timeout) = match level {
        // No service compares tokens, so a request must be given up before its lock can be lost.
        DemoFenceLevel::Unfenced | DemoFenceLevel::None => ("none", "1s"),
        // The timeout is longer than the guard may take to settle and to execute.
        DemoFenceLevel::Guard => ("guard, direct: true", "5s"),
        DemoFenceLevel::Upstream => ("upstream", "10s"),
    };
    let fence = match level {
        DemoFenceLevel::Unfenced => "none",
        DemoFenceLevel::None | DemoFenceLevel::Guard | DemoFenceLevel::Upstream => {
            r#"{key: "account/{path.id}", wait: 10s, queue: 200}"#
        }
    };
    let tickets = match signing_key {
        Some(key) => format!("tickets: {{signing_key_file: {}}}\n", key.display()),
        None => String::new(),
    };
    let session = SESSION.as_millis();
    let tick = TICK.as_millis();
    format!(
        r#"version: 1
name: {name}
listeners: {{public: {{address: "127.0.0.1:0"}}}}
admin: {{address: "127.0.0.1:0"}}
zookeeper: {{servers: ["{zookeeper}"], root: /demo, session_timeout: {session}ms, tick: {tick}ms}}
upstreams:
  ledger: {{endpoints: ["http://{upstream}"], fencing: {fencing}, response_timeout: {response_timeout}}}
routes:
  - name: account
    upstream: ledger
    match: {{methods: [POST], path: "/v1/accounts/{{id}}/{{action}}"}}
    fence: {fence}
  - name: read
    upstream: ledger
    match: {{methods: [GET], path: "/v1/{{rest...}}"}}
    fence: none
unmatched: reject
{tickets}"#
    )
}

/// The file of the guard. Its times are short, because a debit of the demo takes milliseconds.
pub(super) fn guard_policy(ledger: SocketAddr, store: &Path, public_keys: &Path) -> String {
    let store = store.display();
    let public_keys = public_keys.display();
    let execution = EXECUTION.as_secs();
    let sending = SENDING.as_secs();
    format!(
        r#"version: 1
listener: {{address: "127.0.0.1:0"}}
admin: {{address: "127.0.0.1:0"}}
upstream: {{endpoint: "http://{ledger}", response_timeout: 1s}}
store: {{redb: {store}}}
settle: 2s
max_execution: {execution}s
send_within: {sending}s
unfenced: [GET]
tickets: {{public_keys_file: {public_keys}}}
"#
    )
}

#[cfg(test)]
mod tests {
    use fencegate_policies::file;

    use super::*;

    #[test]
    fn all_levels_load_without_diagnostics() {
        let address = ([127, 0, 0, 1], 2181).into();
        let guarded =
            file::load_guard(&guard_policy(address, Path::new("/d/g.redb"), Path::new("/d/keys.json")));
        assert!(guarded.diagnostics.is_empty() && guarded.plan.is_some(), "{:?}", guarded.diagnostics);
        for level in DemoFenceLevel::ALL {
            let key = Some(Path::new("/d/key.json"));
            let loaded = file::load(&gateway_policy("gateway-1", level, address, address, key));
            assert!(loaded.diagnostics.is_empty(), "{level:?}: {:?}", loaded.diagnostics);
            assert!(loaded.plan.is_some(), "{level:?}");
        }
    }
}
