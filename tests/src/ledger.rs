//! The sample service as a process: an upstream that keeps accounts and refuses stale tokens.

use std::{net::SocketAddr, sync::Arc};

use fencegate_testkit::{
    child::{ChildProcess, Signal},
    scratch,
    wait::PATIENCE,
};
use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::{client::TestRequest, freeze};

pub struct Ledger {
    pub address: SocketAddr,
    process: Arc<ChildProcess>,
}

impl Ledger {
    /// Starts the service with an empty database, which is removed with it. The service compares tokens.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts the service with these arguments.
    ///
    /// # Panics
    /// If the service does not start.
    pub async fn start_with(arguments: &[&str]) -> Self {
        let program = scratch::binaries().join("fencegate-ledger");
        assert!(program.exists(), "{} is missing: run `cargo build --workspace` first", program.display());
        let process = Arc::new(ChildProcess::spawn(program, arguments).expect("setpriv"));
        let child = process.clone();
        let listening = |line: &str| address(line).is_some();
        let said = spawn_blocking(move || child.wait_line(listening, PATIENCE)).await.expect("no panic");
        let address = address(&said.expect("the ledger listens")).expect("found by parsing");
        Self { address, process }
    }

    /// Sends a signal to the service.
    ///
    /// # Panics
    /// If the service has ended.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal).expect("it runs");
    }

    /// Freezes the service, and returns when all of its threads have stopped. SIGCONT lets it go on.
    ///
    /// # Panics
    /// If the service has ended, or its threads do not stop.
    pub fn freeze(&self) {
        freeze::stop(self.process.pid());
    }

    /// The response to a request that needs no token, as JSON.
    pub async fn read(&self, path: &str) -> Value {
        let answer = TestRequest::get(path).send_to(self.address).await.expect("the ledger answers");
        assert_eq!(answer.status, 200, "{path}");
        serde_json::from_slice(&answer.body).expect("JSON")
    }

    /// The balance of an account, in cents.
    pub async fn balance(&self, account: &str) -> i64 {
        self.read(&format!("/v1/accounts/{account}")).await["balance"].as_i64().expect("a balance")
    }

    /// All executions, in the order of their transactions.
    pub async fn executions(&self) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map_or(0, |last: &Value| last["sequence"].as_i64().expect("a number"));
            let mut page = self.read(&format!("/v1/executions?after={after}")).await;
            let page = page["executions"].as_array_mut().expect("a list");
            if page.is_empty() {
                return all;
            }
            all.append(page);
        }
    }
}

fn address(line: &str) -> Option<SocketAddr> {
    serde_json::from_str::<Value>(line).ok()?["listening"].as_str()?.parse().ok()
}
