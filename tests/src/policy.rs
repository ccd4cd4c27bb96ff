//! Policy files for tests, written as JSON, which is valid YAML. A test starts from a valid policy and changes
//! values by JSON pointers.

use std::{fmt, net::SocketAddr, path::Path};

use serde_json::{Value, json};

#[derive(Debug, Clone)]
pub struct TestPolicy(Value);

impl TestPolicy {
    /// A gateway's policy: it fences `POST /pay/{account}` by account, and forwards every GET unfenced.
    pub fn new(name: &str, zookeeper: SocketAddr, root: &str, upstream: SocketAddr) -> Self {
        Self(json!({
            "version": 1,
            "name": name,
            "listeners": {"public": {"address": "127.0.0.1:0"}},
            "admin": {"address": "127.0.0.1:0"},
            "zookeeper": {
                "servers": [zookeeper.to_string()],
                "root": root,
                "session_timeout": "2s",
                "tick": "200ms",
            },
            "upstreams": {
                "ledger": {
                    "endpoints": [format!("http://{upstream}")],
                    "fencing": "upstream",
                    "response_timeout": "10s",
                },
            },
            // A lock node for each request, because the tests count nodes. Tests of cached tenures set another mode.
            "defaults": {"hold": {"mode": "strict"}},
            "routes": [
                {
                    "name": "pay",
                    "upstream": "ledger",
                    "match": {"methods": ["POST"], "path": "/pay/{account}"},
                    "fence": {"key": "account/{path.account}", "wait": "5s", "queue": 50},
                },
                {
                    "name": "read",
                    "upstream": "ledger",
                    "match": {"methods": ["GET"], "path": "/{rest...}"},
                    "fence": "none",
                },
            ],
            "unmatched": "reject",
        }))
    }

    /// A guard's policy: GET passes without a token, all other requests are checked, and the times are short enough
    /// for tests.
    pub fn for_guard(upstream: SocketAddr, store: &Path) -> Self {
        Self(json!({
            "version": 1,
            "listener": {"address": "127.0.0.1:0"},
            "admin": {"address": "127.0.0.1:0"},
            "upstream": {"endpoint": format!("http://{upstream}"), "response_timeout": "6s"},
            "store": {"redb": store},
            "settle": "6s",
            "max_execution": "9s",
            "send_within": "3s",
            "unfenced": ["GET"],
        }))
    }

    /// Reads a policy from YAML. Fields with the value `null` count as not written.
    ///
    /// # Panics
    /// If the text is not YAML.
    pub fn from_yaml(text: &str) -> Self {
        Self(serde_saphyr::from_str(text).expect("YAML"))
    }

    /// Sets the value at a JSON pointer, and makes members on the way that do not exist.
    ///
    /// # Panics
    /// If the pointer leads through a value that has no members.
    #[must_use]
    pub fn with(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let mut place = &mut self.0;
        for name in pointer.split('/').skip(1) {
            place = match place {
                Value::Array(items) => {
                    let index: usize = name.parse().expect("an index");
                    items.get_mut(index).expect("an item that exists")
                }
                members => &mut members[name],
            };
        }
        *place = value.into();
        self
    }

    /// Caches tenures between requests, with limits so short that gateways hand them over during a test.
    #[must_use]
    pub fn with_cached_hold(self) -> Self {
        let hold = json!({"mode": "cached", "linger": "50ms", "max_local": 4, "max_hold": "20ms"});
        self.with("/defaults/hold", hold)
    }

    /// Keeps a tenure for this time after its last request, unless another request waits for the key.
    #[must_use]
    pub fn with_linger(self, linger: &str) -> Self {
        self.with("/defaults/hold", json!({"mode": "cached", "linger": linger}))
    }

    /// Sets the address of ZooKeeper, for example to a proxy in front of it.
    #[must_use]
    pub fn with_zookeeper(self, address: SocketAddr) -> Self {
        self.with("/zookeeper/servers", json!([address.to_string()]))
    }

    /// Appends a route.
    ///
    /// # Panics
    /// Never: the policy has a list of routes.
    #[must_use]
    pub fn with_route(mut self, route: Value) -> Self {
        self.0["routes"].as_array_mut().expect("a list of routes").push(route);
        self
    }

    /// Removes a route.
    ///
    /// # Panics
    /// If there is no route of this name.
    #[must_use]
    pub fn without_route(mut self, name: &str) -> Self {
        let routes = self.0["routes"].as_array_mut().expect("a list of routes");
        let at = routes.iter().position(|route| route["name"] == name).expect("a route of this name");
        routes.remove(at);
        self
    }
}

impl fmt::Display for TestPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `TestPolicy::with` changes the value at its pointer and no other, and the policy stays valid.
    #[test]
    fn with_changes_only_given_pointer() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let sound = TestPolicy::new("gw-1", address, "/t/0", address);
        let changed = sound
            .clone()
            .with("/routes/0/fence/wait", "1s")
            .with("/listeners/public/limits/max_body", "1KiB");
        assert_eq!(changed.0.pointer("/routes/0/fence/wait"), Some(&json!("1s")));
        assert_eq!(changed.0.pointer("/listeners/public/limits"), Some(&json!({"max_body": "1KiB"})));
        assert_eq!(changed.0.pointer("/routes/1"), sound.0.pointer("/routes/1"));
        for policy in [sound, changed] {
            let loaded = fencegate_policies::file::load(&policy.to_string());
            assert_eq!(loaded.diagnostics, [], "{policy}");
        }
    }
}
