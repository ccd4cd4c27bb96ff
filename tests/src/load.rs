//! Many clients at once, for a bounded number of requests.

use std::{net::SocketAddr, time::Duration};

use fencegate_testkit::wait::PATIENCE;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    client::{ClientResponse, Http1Client, TestRequest},
    gateway::Gateway,
    history::{ATTEMPT, History},
    origin::Origin,
};

/// Clients that send requests. Each ends by itself after its `requests`.
pub struct RunningLoad {
    clients: Vec<JoinHandle<Vec<AttemptResult>>>,
    stop: watch::Sender<bool>,
}

/// The clients of a load, and the requests that they send to which gateways.
#[derive(Debug, Clone)]
pub struct LoadPlan {
    /// Client n uses the gateway with index n modulo the number of gateways.
    pub gateways: Vec<SocketAddr>,
    /// Request i of client n has the path with index n + i modulo the number of paths.
    pub paths: Vec<String>,
    pub clients: usize,
    /// The largest number of requests of each client.
    pub requests: usize,
    /// The pause between a response and the next request of the same client.
    pub pause: Duration,
}

/// The pause of clients that must not use up the processor.
pub const PAUSE: Duration = Duration::from_millis(25);

impl LoadPlan {
    /// Clients that pay to this number of accounts, each at most about forty times per second: a faster load takes
    /// processor time from the tests beside it.
    pub fn payments(gateways: &[&Gateway], accounts: usize, clients: usize, requests: usize) -> Self {
        Self {
            gateways: gateways.iter().map(|gateway| gateway.public).collect(),
            paths: (0..accounts).map(|account| format!("/pay/{account}")).collect(),
            clients,
            requests,
            pause: PAUSE,
        }
    }
}

/// The result of one attempt.
#[derive(Debug, Clone)]
pub struct AttemptResult {
    pub id: String,
    pub answer: Result<ClientResponse, String>,
}

impl RunningLoad {
    /// Starts clients that send POST. `name` begins the ids of their attempts, which differ from those of other
    /// loads.
    pub fn start(name: &str, plan: &LoadPlan) -> Self {
        Self::start_with(TestRequest::post, name, plan)
    }

    /// Starts clients that send the request which `ask` makes from a path.
    pub fn start_with(ask: fn(&str) -> TestRequest, name: &str, plan: &LoadPlan) -> Self {
        let stop = watch::Sender::new(false);
        let client = |n| tokio::spawn(work(ask, format!("{name}-{n}"), n, plan.clone(), stop.subscribe()));
        let clients = (0..plan.clients).map(client).collect();
        Self { clients, stop }
    }

    /// Lets each client finish its request, and returns all results.
    pub async fn stop(self) -> Vec<AttemptResult> {
        self.stop.send_replace(true);
        self.end().await
    }

    /// Stops the clients and compares their responses with the executions of the origin. Keys must have been handed
    /// over between gateways at least `hand_overs` times, because a history without handovers shows little. Returns
    /// all results.
    ///
    /// # Panics
    /// If a promise was broken, or if there were too few handovers.
    pub async fn assert_promises(self, origin: &Origin, hand_overs: usize) -> Vec<AttemptResult> {
        let told = self.stop().await;
        let history = History::from_log(&origin.log()).with_results(&told);
        history.assert_holds();
        let seen = history.hand_overs();
        assert!(seen >= hand_overs, "not exercised: {seen} hand-overs");
        told
    }

    /// Waits until every client has sent all its requests.
    ///
    /// # Panics
    /// If a client does not end in time.
    pub async fn end(self) -> Vec<AttemptResult> {
        let all = async {
            let mut told = Vec::new();
            for client in self.clients {
                told.extend(client.await.expect("no panic"));
            }
            told
        };
        timeout(3 * PATIENCE, all).await.expect("clients end in bounded time")
    }
}

async fn work(
    ask: fn(&str) -> TestRequest,
    name: String,
    number: usize,
    plan: LoadPlan,
    stop: watch::Receiver<bool>,
) -> Vec<AttemptResult> {
    let address = plan.gateways[number % plan.gateways.len()];
    let mut told = Vec::new();
    let mut connection = None;
    for i in 0..plan.requests {
        if *stop.borrow() {
            break;
        }
        let id = format!("{name}-{i}");
        let ask = ask(&plan.paths[(number + i) % plan.paths.len()]).field(ATTEMPT, &id);
        let answer = send(&mut connection, address, &ask).await;
        let served = answer.as_ref().is_ok_and(|answer| answer.status == 200);
        if answer.is_err() {
            connection = None;
        }
        told.push(AttemptResult { id, answer });
        // A client that was refused tries again after a pause, which also bounds the load on a gateway that refuses
        // all requests.
        sleep(if served { plan.pause } else { plan.pause.max(Duration::from_millis(20)) }).await;
    }
    told
}

async fn send(
    connection: &mut Option<Http1Client>,
    address: SocketAddr,
    ask: &TestRequest,
) -> Result<ClientResponse, String> {
    let client = match connection {
        Some(client) => client,
        None => connection.insert(Http1Client::connect(address).await?),
    };
    match timeout(PATIENCE, client.send(ask)).await {
        Ok(answer) => answer,
        Err(_) => Err("no answer at all".to_owned()),
    }
}

impl History {
    /// Adds the outcomes of all clients of a load.
    #[must_use]
    pub fn with_results(mut self, told: &[AttemptResult]) -> Self {
        for AttemptResult { id, answer } in told {
            self.record_answer(id, answer.as_ref().ok());
        }
        self
    }
}
