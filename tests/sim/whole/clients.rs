//! The clients. Each sends its request as often as its schedule demands, and records the responses.

use std::{cell::RefCell, collections::BTreeMap, error::Error, rc::Rc, time::Duration};

use fencegate_tests::{
    client::{ClientResponse, FencingOutcome},
    history::{ATTEMPT, ClientOutcome},
};
use hyper::{HeaderMap, Request, http::request::Builder};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use super::{
    addresses::{BEARER, GATEWAYS},
    exchange::send,
    network::SimHost,
    schedule::{ClientRequest, LeaseSchedule},
    upstream::{CALLS, RELAYED, WORKS},
};

/// All clients of a simulation.
pub(super) struct SimClients {
    host: SimHost,
    told: RefCell<Vec<ClientAnswer>>,
    seen: RefCell<BTreeMap<String, u64>>,
    endless: RefCell<Vec<String>>,
}

/// The answer to one request.
#[derive(Debug, Clone)]
pub(super) struct ClientAnswer {
    /// The route of the request.
    pub(super) route: String,
    pub(super) attempt: ClientOutcome,
    /// `None` if there was no response.
    pub(super) status: Option<u16>,
}

/// Longer than the time limits of gateway and guard and all accidents take together.
const PATIENCE: Duration = Duration::from_secs(60);

impl SimClients {
    pub(super) fn new(host: SimHost) -> Rc<Self> {
        Rc::new(Self {
            host,
            told: RefCell::default(),
            seen: RefCell::default(),
            endless: RefCell::default(),
        })
    }

    pub(super) fn answers(&self) -> Vec<ClientAnswer> {
        self.told.borrow().clone()
    }

    /// The requests that have not ended.
    pub(super) fn unfinished(&self) -> Vec<String> {
        self.endless.borrow().clone()
    }

    /// Sends a request. It is repeated if it is an operation, and becomes several requests if it has a lease.
    pub(super) async fn perform(&self, number: usize, ask: &ClientRequest) {
        if ask.lease.is_some() {
            self.run_within(number, ask, PATIENCE * 2, self.send_under_lease(number, ask)).await;
            return;
        }
        let repeats = ask.once.as_ref().map_or(0, |once| once.repeats);
        for again in 0..=repeats {
            let gateway = (ask.gateway + usize::try_from(again).unwrap_or_default()) % GATEWAYS.len();
            let limit = ask.leaves.filter(|_| again == 0).unwrap_or(PATIENCE);
            self.run_within(number, ask, limit, self.send_one(number, again, gateway, ask, None)).await;
            sleep(Duration::from_millis(400)).await;
        }
    }

    /// Waits for a response. The client goes away at the time limit, which is a violation if the limit is at least
    /// [`PATIENCE`].
    async fn run_within(
        &self,
        number: usize,
        ask: &ClientRequest,
        limit: Duration,
        asked: impl Future<Output = ()>,
    ) {
        if timeout(limit, asked).await.is_err() {
            info!(number, "client.leaves");
            if limit >= PATIENCE {
                self.endless.borrow_mut().push(format!("{number}: {ask}"));
            }
        }
    }

    /// Takes a lease, and sends requests under it. If no lease is granted, it sends none.
    async fn send_under_lease(&self, number: usize, ask: &ClientRequest) {
        let Some(LeaseSchedule { requests, pause }) = &ask.lease else { return };
        let wanted =
            json!({"keys": [format!("account/{}", ask.resource())], "ttl_ms": 4000, "wait_ms": 8000});
        let asked =
            Request::post("/.fencegate/v1/leases").header("authorization", format!("Bearer {BEARER}"));
        let answer = self.send(ask.gateway, asked, wanted.to_string()).await;
        let granted = answer.ok().filter(|answer| answer.status == 201);
        info!(number, granted = granted.is_some(), "client.leases");
        let Some(document) = granted.and_then(|answer| serde_json::from_slice::<Value>(&answer.body).ok())
        else {
            return self.count_answer("no-lease");
        };
        self.count_answer("lease");
        let text = |member: &str| document[member].as_str().expect("a text").to_owned();
        let id = text("lease");
        let reference = text("reference");
        for again in 0..*requests {
            let gateway = (ask.gateway + usize::try_from(again).unwrap_or_default()) % GATEWAYS.len();
            self.send_one(number, again, gateway, ask, Some(&id)).await;
            sleep(*pause).await;
        }
        let released =
            Request::delete(format!("/.fencegate/v1/leases/{reference}")).header("fencing-lease", &id);
        let status = self.send(ask.gateway, released, String::new()).await.ok().map(|answer| answer.status);
        info!(number, status, "client.releases");
    }

    async fn send_one(
        &self,
        number: usize,
        again: u32,
        gateway: usize,
        ask: &ClientRequest,
        lease: Option<&str>,
    ) {
        let id = ask.attempt(number, again);
        info!(number, gateway, path = ask.path, id, "client.asks");
        let answer = self.send(gateway, build_request(ask, &id, lease), String::new()).await.ok();
        let status = answer.as_ref().map(|answer| answer.status);
        let reason = answer.as_ref().and_then(reason);
        let outcome = answer.as_ref().and_then(ClientResponse::outcome);
        info!(number, status, reason, ?outcome, "client.told");
        self.count_answer(
            &reason.unwrap_or_else(|| status.map_or("no-answer".into(), |status| status.to_string())),
        );
        // If an operation was sent several times, the outcome of one attempt proves nothing about the others.
        let outcome = match (&ask.once, outcome) {
            (Some(_), Some(FencingOutcome::Replayed)) => Some(FencingOutcome::Done),
            (Some(_), Some(FencingOutcome::NotDispatched)) => None,
            (_, outcome) => outcome,
        };
        let route = ask.path.split('/').nth(1).unwrap_or_default().to_owned();
        self.told.borrow_mut().push(ClientAnswer { route, attempt: ClientOutcome { id, outcome }, status });
    }

    fn count_answer(&self, what: &str) {
        *self.seen.borrow_mut().entry(what.to_owned()).or_default() += 1;
    }

    /// The number of responses with each outcome.
    pub(super) fn answer_counts(&self) -> BTreeMap<String, u64> {
        self.seen.borrow().clone()
    }

    /// Sends a request on a connection of its own.
    async fn send(
        &self,
        gateway: usize,
        request: Builder,
        body: String,
    ) -> Result<ClientResponse, Box<dyn Error>> {
        let invoked = Instant::now().into_std();
        let (head, body) = send(&self.host, gateway, request, body).await?;
        let status = head.status.as_u16();
        let fields = head.headers;
        let completed = Instant::now().into_std();
        Ok(ClientResponse { status, fields, body, trailers: HeaderMap::new(), invoked, completed })
    }
}

fn build_request(ask: &ClientRequest, id: &str, lease: Option<&str>) -> Builder {
    let request =
        Request::post(&ask.path).header(ATTEMPT, id).header(WORKS, ask.works.as_millis().to_string());
    let once = ask.once.as_ref();
    let fields = [
        ("fencing-lease", lease.map(str::to_owned)),
        ("idempotency-key", once.map(|once| once.name.clone())),
        ("x-shop", once.and_then(|once| once.principal).map(str::to_owned)),
        (CALLS, ask.calls.map(|gateway| gateway.to_string())),
        (RELAYED, ask.relayed.map(|patience| patience.as_millis().to_string())),
    ];
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
    fields.fold(request, |request, (name, value)| request.header(name, value))
}

fn reason(answer: &ClientResponse) -> Option<String> {
    let document: Value = serde_json::from_slice(&answer.body).ok()?;
    Some(document.get("reason")?.as_str()?.to_owned())
}
