//! Clients that keep their connections while gateways on one address replace each other. Each request must be
//! answered, and executed once.

use std::net::SocketAddr;

use tokio::{sync::watch, task::JoinHandle};

use crate::{
    client::{ClientResponse, FencingOutcome, Http1Client, TestRequest},
    history::{ATTEMPT, History},
    origin::Origin,
};

/// Six clients that send requests until [`Self::finish`].
pub struct RollingLoad {
    callers: Vec<JoinHandle<RollingClient>>,
    stop: watch::Sender<bool>,
}

/// One client. It keeps its connection, and makes another one when the connection has ended.
struct RollingClient {
    address: SocketAddr,
    name: String,
    told: Vec<(String, ClientResponse)>,
    /// The number of requests that were sent again, because the connection ended before any byte of the answer.
    again: usize,
}

impl RollingLoad {
    /// Starts the clients. Each client uses one of the addresses.
    pub fn start(addresses: &[SocketAddr]) -> Self {
        let stop = watch::Sender::new(false);
        let callers = addresses.iter().cycle().take(6).enumerate().map(|(n, &address)| {
            let caller = RollingClient { address, name: format!("c{n}"), told: Vec::new(), again: 0 };
            tokio::spawn(caller.send_until_stopped(stop.subscribe()))
        });
        Self { callers: callers.collect(), stop }
    }

    /// Ends the load, and returns the number of requests.
    ///
    /// # Panics
    /// If a request failed or was executed twice, or if too many connections ended without an answer.
    pub async fn finish(self, origin: &Origin) -> usize {
        self.stop.send_replace(true);
        let mut ended = Vec::new();
        let mut requests = 0;
        let mut again = 0;
        for caller in self.callers {
            ended.push(caller.await.expect("no panic"));
        }
        let mut history = History::from_log(&origin.log());
        for caller in ended {
            again += caller.again;
            requests += caller.told.len();
            for (id, answer) in caller.told {
                assert_eq!(answer.status, 200, "{id}: {answer:?}");
                assert!(matches!(answer.outcome(), None | Some(FencingOutcome::Done)), "{id}: {answer:?}");
                if answer.outcome().is_some() {
                    history.record_answer(&id, Some(&answer));
                }
            }
        }
        println!("{requests} requests, {again} sent again after a reset before any byte");
        assert!(again * 50 < requests, "{again} of {requests} connections ended without an answer");
        // The history also shows that no request was executed before it was sent again.
        history.assert_holds();
        requests
    }
}

impl RollingClient {
    async fn send_until_stopped(mut self, stop: watch::Receiver<bool>) -> Self {
        let mut connection = None;
        for number in 0.. {
            if *stop.borrow() {
                break;
            }
            let id = format!("{}-{number}", self.name);
            let ask = match number % 3 {
                0 => TestRequest::get("/read").field(ATTEMPT, &id),
                n => TestRequest::post(&format!("/pay/{n}")).field(ATTEMPT, &id),
            };
            let answer = self.answer(&mut connection, &ask).await;
            self.told.push((id, answer));
        }
        self
    }

    async fn answer(&mut self, connection: &mut Option<Http1Client>, ask: &TestRequest) -> ClientResponse {
        for _ in 0..5 {
            let client = match connection.take() {
                Some(client) => Ok(client),
                None => Http1Client::connect(self.address).await,
            };
            if let Ok(mut client) = client
                && let Ok(answer) = client.send(ask).await
            {
                let stays = answer.field("connection") != Some("close");
                *connection = stays.then_some(client);
                return answer;
            }
            self.again += 1;
        }
        panic!("{}: five connections in a row ended without an answer", self.name);
    }
}
