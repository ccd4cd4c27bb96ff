//! Clients as real services have them: some wait, some give up and try another gateway, some disconnect.

use std::{
    net::SocketAddr,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    client_protocol::{ProtocolConfig, ProtocolConnection},
    payment::PaymentRequest,
    run_log::{ClientAttempt, ResponseContent},
    workload::WorkloadKind,
};
use crate::{client::ClientResponse, leases::ClientLease, memory::rng::SeededRng};

/// The clients of a run, and the attempts that they have made so far.
pub struct ClientPool {
    shared: Arc<PoolState>,
    /// The tasks of the clients. Dropping the set ends them.
    at_work: Mutex<JoinSet<()>>,
    /// The number of requests that accidents have added.
    own: AtomicUsize,
}

struct PoolState {
    gateways: Vec<(String, SocketAddr)>,
    spoken: ProtocolConfig,
    errand: WorkloadKind,
    asked: watch::Sender<Vec<ClientAttempt>>,
    stop: watch::Sender<bool>,
}

/// The behaviour of a client that gets no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientBehavior {
    /// Waits for a long time, and always uses the same gateway.
    Patient,
    /// Gives up soon, and tries the next gateway.
    Hasty,
    /// Often disconnects while its request is in flight.
    Fickle,
}

const PATIENT: Duration = Duration::from_secs(40);
const HASTY: Duration = Duration::from_millis(2500);
const FICKLE: Range<Duration> = Duration::from_millis(3)..Duration::from_millis(300);

/// The behaviour of each client, by its number.
const MANNERS: [ClientBehavior; 12] = [
    ClientBehavior::Patient,
    ClientBehavior::Hasty,
    ClientBehavior::Hasty,
    ClientBehavior::Patient,
    ClientBehavior::Fickle,
    ClientBehavior::Hasty,
    ClientBehavior::Hasty,
    ClientBehavior::Patient,
    ClientBehavior::Fickle,
    ClientBehavior::Hasty,
    ClientBehavior::Hasty,
    ClientBehavior::Patient,
];

/// The pause between a response and the next request of the same client.
const PAUSE: Range<Duration> = Duration::from_millis(2)..Duration::from_millis(12);
/// The pause after a refusal or a broken connection.
const LATER: Range<Duration> = Duration::from_millis(20)..Duration::from_millis(60);

impl ClientPool {
    /// Starts the clients. `gateways`: names and addresses, by the numbers of the gateways.
    pub fn start(
        gateways: Vec<(String, SocketAddr)>,
        spoken: ProtocolConfig,
        errand: WorkloadKind,
        dice: &SeededRng,
    ) -> Self {
        let shared = Arc::new(PoolState {
            gateways,
            spoken,
            errand,
            asked: watch::Sender::default(),
            stop: watch::Sender::new(false),
        });
        let mut at_work = JoinSet::new();
        for number in 0..MANNERS.len() {
            let caller = ClientTask {
                shared: Arc::clone(&shared),
                number,
                manner: MANNERS[number % MANNERS.len()],
                at: number % shared.gateways.len(),
                dice: SeededRng::new(dice.next()),
            };
            at_work.spawn(caller.run_client());
        }
        Self { shared, at_work: Mutex::new(at_work), own: AtomicUsize::new(0) }
    }

    /// Sends one more request through this gateway, for a client that waits. Returns its id without waiting for the
    /// response.
    pub fn send(&self, gateway: usize, path: &str, work: Duration) -> String {
        self.send_with_patience(PATIENT, gateway, path, work)
    }

    /// As [`Self::send`], under a lease.
    pub fn send_with_lease(&self, lease: &ClientLease, gateway: usize, path: &str, work: Duration) -> String {
        self.spawn_attempt(PATIENT, gateway, path, Some(lease), work)
    }

    /// As [`Self::send`], for a client that disconnects after `patience`.
    pub fn send_with_patience(
        &self,
        patience: Duration,
        gateway: usize,
        path: &str,
        work: Duration,
    ) -> String {
        self.spawn_attempt(patience, gateway, path, None, work)
    }

    fn spawn_attempt(
        &self,
        patience: Duration,
        gateway: usize,
        path: &str,
        lease: Option<&ClientLease>,
        work: Duration,
    ) -> String {
        let shared = Arc::clone(&self.shared);
        let id = shared.name(&format!("own-{}", self.own.fetch_add(1, Ordering::Relaxed)), gateway);
        let mut ask = shared.errand.extra_request(path, &id, work);
        if let Some(lease) = lease {
            ask.ask = lease.with_lease(ask.ask);
        }
        let one = async move {
            let mut line = None;
            shared.send_attempt(&mut line, gateway, ask, patience).await;
        };
        self.at_work.lock().expect("no thread panics here").spawn(one);
        id
    }

    /// Waits until the attempts so far satisfy `shows`. False if they do not within `limit`.
    pub async fn wait_until(&self, limit: Duration, shows: impl Fn(&[ClientAttempt]) -> bool) -> bool {
        let mut asked = self.shared.asked.subscribe();
        timeout(limit, asked.wait_for(|asked| shows(asked))).await.is_ok()
    }

    /// Lets each client finish its request, and returns all attempts.
    ///
    /// # Panics
    /// If a client panicked.
    pub async fn stop(self) -> Vec<ClientAttempt> {
        self.shared.stop.send_replace(true);
        let mut at_work = self.at_work.into_inner().expect("no thread panics here");
        while let Some(ended) = at_work.join_next().await {
            ended.expect("no panic");
        }
        self.shared.asked.borrow().clone()
    }
}

impl PoolState {
    /// The id of an attempt. It names the gateway that gets the request, because the record of an origin behind a
    /// guard does not.
    fn name(&self, what: &str, gateway: usize) -> String {
        format!("{what}@{}", self.gateways[gateway].0)
    }

    /// Sends a request, and records the attempt. The connection is kept if it can be used again.
    async fn send_attempt(
        &self,
        line: &mut Option<ProtocolConnection>,
        gateway: usize,
        ask: PaymentRequest,
        patience: Duration,
    ) -> Option<ClientResponse> {
        let invoked = Instant::now();
        let sent = async {
            let mut open = match line.take() {
                Some(open) => open,
                None => self.spoken.connect(self.gateways[gateway].1).await?,
            };
            let answer = open.send(&ask.ask).await?;
            Ok::<_, String>((open, answer))
        };
        let answer = match timeout(patience, sent).await {
            Ok(Ok((open, answer))) => {
                *line = Some(open);
                Some(answer)
            }
            // The connection was dropped with the request, so the next request opens another one.
            Ok(Err(_)) | Err(_) => None,
        };
        let told = answer.as_ref().map(|answer| ResponseContent {
            status: answer.status,
            outcome: answer.outcome(),
            body: String::from_utf8_lossy(&answer.body).into_owned(),
        });
        let PaymentRequest { id, operation, path, writes, judged, .. } = ask;
        let completed = Instant::now();
        let asked = ClientAttempt { id, operation, path, writes, gateway, invoked, completed, told };
        if judged {
            self.asked.send_modify(|all| all.push(asked));
        }
        answer
    }
}

struct ClientTask {
    shared: Arc<PoolState>,
    number: usize,
    manner: ClientBehavior,
    /// The index of the gateway that gets the client's next request.
    at: usize,
    dice: SeededRng,
}

impl ClientTask {
    async fn run_client(mut self) {
        let mut line = None;
        let mut errands = self.shared.errand.begin(self.number);
        for n in 0.. {
            if *self.shared.stop.borrow() {
                return;
            }
            let id = self.shared.name(&format!("c{}-{n}", self.number), self.at);
            let ask = errands.next(&id, &self.dice);
            let answer = self.shared.send_attempt(&mut line, self.at, ask, self.patience()).await;
            errands.record_answer(answer.as_ref());
            let served = answer.as_ref().is_some_and(|answer| (200..300).contains(&answer.status));
            if answer.is_none() && self.manner != ClientBehavior::Patient {
                self.at = (self.at + 1) % self.shared.gateways.len();
                line = None;
            }
            sleep(self.dice.within(if served { &PAUSE } else { &LATER })).await;
        }
    }

    fn patience(&self) -> Duration {
        match self.manner {
            ClientBehavior::Patient => PATIENT,
            ClientBehavior::Fickle if self.dice.below(10) < 6 => self.dice.within(&FICKLE),
            ClientBehavior::Hasty | ClientBehavior::Fickle => HASTY,
        }
    }
}
