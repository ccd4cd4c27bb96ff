//! The policy files that the gateways of the demo run with.

use std::net::SocketAddr;
use std::time::Duration;

use super::Level;

/// Asked for, and granted by the private ZooKeeper: a holder that is silent for so long has lost its locks.
pub(super) const SESSION: Duration = Duration::from_secs(2);
/// Unit of time of the private ZooKeeper.
pub(super) const TICK: Duration = Duration::from_millis(200);

/// `ledger` is where this gateway reaches it, which may be a relay in between.
pub(super) fn written(name: &str, level: Level, zookeeper: SocketAddr, ledger: SocketAddr) -> String {
    let (fencing, response_timeout) = match level {
        // Nobody compares, so a request must be given up before its lock can be lost.
        Level::None => ("none", "1s"),
        Level::Upstream => ("upstream", "10s"),
    };
    let (session, tick) = (SESSION.as_millis(), TICK.as_millis());
    format!(
        r#"version: 1
name: {name}
listeners: {{public: {{address: "127.0.0.1:0"}}}}
admin: {{address: "127.0.0.1:0"}}
zookeeper: {{servers: ["{zookeeper}"], root: /demo, session_timeout: {session}ms, tick: {tick}ms}}
upstreams:
  ledger: {{endpoints: ["http://{ledger}"], fencing: {fencing}, response_timeout: {response_timeout}}}
routes:
  - name: account
    upstream: ledger
    match: {{methods: [POST], path: "/v1/accounts/{{id}}/{{action}}"}}
    fence: {{key: "account/{{path.id}}", wait: 10s, queue: 200}}
  - name: read
    upstream: ledger
    match: {{methods: [GET], path: "/v1/{{rest...}}"}}
    fence: none
unmatched: reject
"#
    )
}

#[cfg(test)]
mod tests {
    use fencegate_policies::file;

    use super::*;

    #[test]
    fn both_levels_are_good_policies_without_a_warning() {
        for level in [Level::None, Level::Upstream] {
            let address = ([127, 0, 0, 1], 2181).into();
            let loaded = file::load(&written("gateway-1", level, address, address));
            assert!(loaded.diagnostics.is_empty(), "{level:?}: {:?}", loaded.diagnostics);
            assert!(loaded.plan.is_some(), "{level:?}");
        }
    }
}
