//! A gateway is replaced by another one on the same address under load: the new one comes first, and no request fails.

use std::net::SocketAddr;

use fencegate::demo::child::Signal;
use fencegate_tests::{
    client::{Answer, Ask, Client, Outcome},
    gateway::Launch,
    history::{ATTEMPT, History},
    policy::Policy,
    site::Site,
};
use tokio::{sync::watch, task::JoinHandle};

const RESTARTS: usize = 10;

/// One client: keeps its connection, and makes another one when that has ended.
struct Caller {
    address: SocketAddr,
    name: String,
    told: Vec<(String, Answer)>,
    /// Requests that met the end of a connection before any byte of an answer.
    again: usize,
}

impl Caller {
    async fn calls(mut self, stop: watch::Receiver<bool>) -> Self {
        let mut connection = None;
        for number in 0.. {
            if *stop.borrow() {
                break;
            }
            let id = format!("{}-{number}", self.name);
            let ask = match number % 3 {
                0 => Ask::get("/read").field(ATTEMPT, &id),
                n => Ask::post(&format!("/pay/{n}")).field(ATTEMPT, &id),
            };
            let answer = self.answer(&mut connection, &ask).await;
            self.told.push((id, answer));
        }
        self
    }

    async fn answer(&mut self, connection: &mut Option<Client>, ask: &Ask) -> Answer {
        for _ in 0..5 {
            let client = match connection.take() {
                Some(client) => Ok(client),
                None => Client::connect(self.address).await,
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

fn policy(site: &Site, name: &str, address: SocketAddr) -> Policy {
    site.policy(name).cached().with("/listeners/public/address", address.to_string())
}

#[tokio::test]
async fn ten_restarts_under_load_fail_no_request() {
    let site = Site::alone().await;
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut gateway = Launch::new(&policy(&site, "gw-0", anywhere)).start().await;
    gateway.becomes_ready().await;
    let (address, stop) = (gateway.public, watch::Sender::new(false));
    let callers: Vec<JoinHandle<Caller>> = (0..6)
        .map(|n| {
            let caller = Caller { address, name: format!("c{n}"), told: Vec::new(), again: 0 };
            tokio::spawn(caller.calls(stop.subscribe()))
        })
        .collect();
    for round in 1..=RESTARTS {
        let before = site.origin.count("/read");
        site.origin.request("/read", before + 10).await;
        let next = Launch::new(&policy(&site, &format!("gw-{round}"), address)).beside().start().await;
        next.becomes_ready().await;
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.exit().await.code(), Some(0), "round {round}");
        gateway = next;
    }
    stop.send_replace(true);
    let (mut ended, mut requests, mut again) = (Vec::new(), 0, 0);
    for caller in callers {
        ended.push(caller.await.expect("no panic"));
    }
    let mut history = History::of(&site.origin.log());
    for caller in ended {
        again += caller.again;
        requests += caller.told.len();
        for (id, answer) in caller.told {
            assert_eq!(answer.status, 200, "{id}: {answer:?}");
            assert!(matches!(answer.outcome(), None | Some(Outcome::Done)), "{id}: {answer:?}");
            if answer.outcome().is_some() {
                history.told(&id, Some(&answer));
            }
        }
    }
    println!(
        "{requests} requests over {RESTARTS} restarts, {again} sent again after a reset before any byte"
    );
    assert!(requests > 500, "not exercised: {requests} requests");
    assert!(again * 50 < requests, "{again} of {requests} connections ended without an answer");
    // Also: nothing that was sent again had been executed.
    history.assert_holds();
}
