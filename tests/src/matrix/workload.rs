//! The requests of clients: their keys, whether they read or write, and whether they name an operation.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    lease_work::LeaseWorkload,
    payment::{PaymentRequest, stamp, work},
};
use crate::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    memory::rng::SeededRng,
    policy::TestPolicy,
};

/// The kind of requests in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadKind {
    /// Each request pays to one account.
    Pay,
    /// Each payment is an operation, which the client repeats until it has the outcome.
    PayOnce,
    /// Half of the requests only read.
    ReadAndPay,
    /// Each request changes two accounts.
    Swap,
    /// Some of the clients hold leases, and pay under them.
    PayUnderLeases,
}

/// The number of accounts.
pub const ACCOUNTS: usize = 4;

/// The requests of one client, in succession.
pub struct Workload {
    errand: WorkloadKind,
    client: usize,
    /// The number of operations or payments that the client has begun.
    begun: usize,
    /// The operation and the path that the client has to repeat.
    open: Option<(String, String)>,
    /// The leases of the client, if it uses them.
    leases: Option<LeaseWorkload>,
}

impl WorkloadKind {
    /// The paths of all requests. Each path has to be served again after the accident.
    pub fn paths(self) -> Vec<String> {
        (0..ACCOUNTS).map(|n| self.path(n)).collect()
    }

    fn path(self, n: usize) -> String {
        match self {
            Self::Pay | Self::PayOnce | Self::ReadAndPay | Self::PayUnderLeases => format!("/pay/{n}"),
            Self::Swap => format!("/swap/{n}/{}", (n + 1) % ACCOUNTS),
        }
    }

    /// Sets the routes that these requests need.
    pub fn routes(self, policy: TestPolicy, once: &Value) -> TestPolicy {
        match self {
            Self::Pay => policy,
            Self::PayUnderLeases => policy.with("/routes/0/fence/lease", "optional"),
            Self::PayOnce => policy.with("/routes/0/fence/once", once.clone()),
            Self::ReadAndPay => policy
                .with("/routes/0/match/methods", json!(["POST", "GET"]))
                .with("/routes/0/fence/mode", "by-method"),
            Self::Swap => policy.with_route(json!({
                "name": "swap",
                "upstream": "ledger",
                "match": {"methods": ["POST"], "path": "/swap/{one}/{two}"},
                "fence": {"keys": ["account/{path.one}", "account/{path.two}"], "wait": "8s", "queue": 50},
            })),
        }
    }

    /// A request for an accident that changes an account and takes the time `work`.
    pub fn extra_request(self, path: &str, id: &str, work: Duration) -> PaymentRequest {
        let operation = (self == Self::PayOnce).then(|| format!("op-{id}"));
        PaymentRequest {
            ask: stamp(TestRequest::post(path), id, operation.as_deref(), work),
            id: id.to_owned(),
            operation,
            path: path.to_owned(),
            writes: true,
            judged: true,
        }
    }

    pub fn begin(self, client: usize) -> Workload {
        // Every fourth client uses leases. These clients wait for their responses.
        let leases = (self == Self::PayUnderLeases && client % 4 == 3).then(LeaseWorkload::default);
        Workload { errand: self, client, begun: 0, open: None, leases }
    }
}

impl Workload {
    pub fn next(&mut self, id: &str, dice: &SeededRng) -> PaymentRequest {
        if let Some(leases) = &mut self.leases {
            return leases.next(id, self.errand.path(dice.index(ACCOUNTS)), dice);
        }
        let (operation, path) = match self.open.take() {
            Some(open) => open,
            None => {
                self.begun += 1;
                (format!("op-{}-{}", self.client, self.begun), self.errand.path(dice.index(ACCOUNTS)))
            }
        };
        let reads = self.errand == WorkloadKind::ReadAndPay && dice.below(2) == 0;
        let ask = if reads { TestRequest::get(&path) } else { TestRequest::post(&path) };
        let names = self.errand == WorkloadKind::PayOnce;
        if names {
            self.open = Some((operation.clone(), path.clone()));
        }
        let operation = names.then_some(operation);
        PaymentRequest {
            ask: stamp(ask, id, operation.as_deref(), work(dice)),
            id: id.to_owned(),
            operation,
            path,
            writes: !reads,
            judged: true,
        }
    }

    /// Records the response, which decides whether the client repeats the operation.
    pub fn record_answer(&mut self, answer: Option<&ClientResponse>) {
        if let Some(leases) = &mut self.leases {
            leases.record_answer(answer);
        }
        let known = answer.and_then(ClientResponse::outcome);
        let settled = matches!(known, Some(FencingOutcome::Done | FencingOutcome::Replayed));
        // After a 409 the outcome stays unknown to the client until an operator resolves it, so it does not repeat
        // the operation.
        let given_up = answer.is_some_and(|answer| answer.status == 409);
        if settled || given_up {
            self.open = None;
        }
    }
}
