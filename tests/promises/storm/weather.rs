//! Kills gateways and the guard, one after the other, and starts them again.

use std::{net::SocketAddr, sync::Mutex, time::Duration};

use fencegate_testkit::child::Signal;
use fencegate_tests::{
    gateway::Gateway,
    guard::{Guard, GuardLaunch},
    guarded::GuardedSite,
    memory::SeededRng,
    policy::TestPolicy,
};
use serde_json::json;
use tokio::sync::watch;

use super::operation::operations;

/// The `max_execution` of the guard.
const MAX_EXECUTION: Duration = Duration::from_millis(1200);

/// The state that clients and weather share.
pub(super) struct StormState {
    pub(super) dice: SeededRng,
    /// The current addresses of the gateways.
    pub(super) doors: [Mutex<SocketAddr>; 2],
    /// The number of operations whose clients have finished.
    pub(super) over: watch::Sender<usize>,
}

pub(super) struct StormFaults {
    dice: SeededRng,
    policies: [TestPolicy; 2],
    gateways: [Gateway; 2],
    guard: Option<Guard>,
    pub(super) gateways_killed: usize,
    pub(super) guards_killed: usize,
}

/// The number of kills: a gateway, the guard, a gateway, and so on in turn.
const ACCIDENTS: usize = 8;

impl StormFaults {
    pub(super) async fn begin(guarded: &GuardedSite, seed: u64) -> Self {
        let guard = guard(guarded.launch().await).start().await;
        let policies = ["gw-1", "gw-2"].map(|name| gateway(guarded, name, guard.public));
        let (one, two) = tokio::join!(Gateway::start(&policies[0]), Gateway::start(&policies[1]));
        Self {
            dice: SeededRng::new(seed),
            policies,
            gateways: [one, two],
            guard: Some(guard),
            gateways_killed: 0,
            guards_killed: 0,
        }
    }

    pub(super) fn doors(&self) -> [SocketAddr; 2] {
        [self.gateways[0].public, self.gateways[1].public]
    }

    /// Runs until the last killed process has been started again. Each kill comes after a further part of the
    /// operations.
    pub(super) async fn run_faults(&mut self, storm: &StormState) {
        let mut over = storm.over.subscribe();
        for accident in 1..=ACCIDENTS {
            let when = accident * operations() / (ACCIDENTS + 1);
            over.wait_for(|over| *over >= when).await.expect("the storm lasts");
            if accident % 2 == 0 {
                self.kill_guard().await;
            } else {
                self.kill_gateway(storm).await;
            }
        }
    }

    async fn kill_guard(&mut self) {
        let guard = self.guard.take().expect("one runs between accidents");
        self.guard = Some(guard.kill().await.start().await);
        self.guards_killed += 1;
    }

    async fn kill_gateway(&mut self, storm: &StormState) {
        let which = self.dice.index(2);
        self.gateways[which].signal(Signal::KILL);
        self.gateways[which].exit().await;
        self.gateways[which] = Gateway::start(&self.policies[which]).await;
        *storm.doors[which].lock().expect("no thread panics here") = self.gateways[which].public;
        self.gateways_killed += 1;
    }

    /// Waits until all processes are up and no key is in doubt.
    pub(super) async fn wait_calm(&self) {
        let guard = self.guard.as_ref().expect("one runs between accidents");
        guard.wait_ready().await;
        guard.wait_gauge("fencegate_guard_in_flight", 0.0).await;
        guard.wait_gauge("fencegate_guard_in_doubt", 0.0).await;
    }
}

fn guard(launch: GuardLaunch) -> GuardLaunch {
    launch
        .with("/settle", "1s")
        .with("/max_execution", format!("{}ms", MAX_EXECUTION.as_millis()))
        .with("/upstream/response_timeout", "500ms")
        .with("/send_within", "600ms")
}

fn gateway(guarded: &GuardedSite, name: &str, guard: SocketAddr) -> TestPolicy {
    guarded
        .policy(name, &[guard])
        .with("/upstreams/ledger/response_timeout", "4s")
        .with("/routes/0/fence/wait", "2s")
        .with("/routes/0/fence/once", json!({"store": "guard"}))
        .with_cached_hold()
}
