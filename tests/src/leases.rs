//! Clients that hold leases of the gateways under test.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use fencegate_policies::token::FencingToken;
use fencegate_testkit::scratch;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    client::{ClientResponse, TestRequest},
    gateway::Gateway,
    policy::TestPolicy,
    process::TestProcess,
    site::TestSite,
};

/// The tokens that lease clients present. The files are deleted with this value.
pub struct LeaseTokens(TempDir);

/// The token of a client that may take `account/*`, `job/*` and `election/*`.
pub const CLIENT: &str = "client-0123456789abcdef";
/// The token of a client that may take `other/*`.
pub const OTHER: &str = "other-0123456789abcdef";
/// The token of an operator, which may take no lease.
pub const OPERATOR: &str = "operator-0123456789abcdef";

impl Default for LeaseTokens {
    /// # Panics
    /// If a file cannot be written.
    fn default() -> Self {
        let home = scratch::temp_dir();
        for (name, token) in [("client", CLIENT), ("other", OTHER), ("operator", OPERATOR)] {
            let file = home.path().join(name);
            fs::write(&file, token).expect("a folder of ours");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a file of ours");
        }
        Self(home)
    }
}

impl LeaseTokens {
    /// The file with the token of `client`, `other` or `operator`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The policy of a gateway of the site that grants leases and has a peer address.
    pub fn policy(&self, site: &TestSite, name: &str) -> TestPolicy {
        self.add_to(site.policy(name))
    }

    /// Adds leases, their principals and a peer address to a policy. Its first route then accepts requests under a
    /// lease.
    pub fn add_to(&self, policy: TestPolicy) -> TestPolicy {
        let peer = json!({"address": "127.0.0.1:0", "advertise": "127.0.0.1:1"});
        self.grant(policy.with("/peer", peer)).with("/routes/0/fence/lease", "optional")
    }

    /// Adds leases and their principals to a policy. Routes and peer address stay as they are.
    pub fn grant(&self, policy: TestPolicy) -> TestPolicy {
        let file = |name: &str| json!({"file": self.file(name)});
        let leases = json!({"min_ttl": "300ms", "max_ttl": "30s", "default_ttl": "10s", "max_wait": "20s", "principals": [
            {"name": "client", "bearer": file("client"), "keys": ["account/*", "job/*", "election/*"]},
            {"name": "other", "bearer": file("other"), "keys": ["other/*"]},
            {"name": "operator", "bearer": file("operator"), "keys": [], "operator": true},
        ]});
        policy.with("/leases", leases)
    }
}

/// A lease that a client holds.
#[derive(Debug, Clone)]
pub struct ClientLease {
    pub id: String,
    pub reference: String,
    /// The document of the lease, as it was granted.
    pub document: Value,
}

/// The request that acquires a lease.
pub fn acquire_request(body: &Value) -> TestRequest {
    TestRequest::post("/.fencegate/v1/leases")
        .field("authorization", &format!("Bearer {CLIENT}"))
        .body(body.to_string())
}

/// The body of a response, as JSON.
///
/// # Panics
/// If the body is not JSON.
pub fn json_body(answer: &ClientResponse) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|bad| panic!("{bad}: {answer:?}"))
}

impl ClientLease {
    /// Acquires a lease.
    ///
    /// # Panics
    /// If the lease is not granted.
    pub async fn acquire(gateway: &Gateway, body: Value) -> Self {
        Self::from_response(&gateway.send(&acquire_request(&body)).await)
    }

    /// Acquires a lease of one key, with the default TTL and a wait of at most ten seconds.
    pub async fn acquire_exclusive(gateway: &Gateway, key: &str) -> Self {
        Self::acquire(gateway, json!({"keys": [key], "wait_ms": 10_000})).await
    }

    /// The lease in the response to its request.
    ///
    /// # Panics
    /// If the response is not a grant.
    pub fn from_response(answer: &ClientResponse) -> Self {
        assert!(matches!(answer.status, 201 | 202), "{answer:?}");
        let document = json_body(answer);
        let text = |member: &str| document[member].as_str().expect("a text").to_owned();
        Self { id: text("lease"), reference: text("reference"), document }
    }

    /// The fencing token of the lease.
    ///
    /// # Panics
    /// If the lease holds no lock.
    pub fn token(&self) -> FencingToken {
        FencingToken::parse(self.document["token"].as_str().expect("a token")).expect("in its form")
    }

    /// Adds the lease to a request.
    pub fn with_lease(&self, ask: TestRequest) -> TestRequest {
        ask.field("fencing-lease", &self.id)
    }

    pub async fn get(&self, gateway: &TestProcess) -> ClientResponse {
        self.send(gateway, "GET", "").await
    }

    pub async fn renew(&self, gateway: &TestProcess) -> ClientResponse {
        self.send(gateway, "POST", "/renew").await
    }

    pub async fn release(&self, gateway: &TestProcess) -> ClientResponse {
        self.send(gateway, "DELETE", "").await
    }

    pub async fn send(&self, gateway: &TestProcess, method: &'static str, below: &str) -> ClientResponse {
        let path = format!("/.fencegate/v1/leases/{}{below}", self.reference);
        gateway.send(&self.with_lease(TestRequest::with_method(method, &path))).await
    }
}
