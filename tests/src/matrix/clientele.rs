//! Clients as a service has them: some wait, some give up and go to another gateway, some hang up.

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
    chronicle::{Asked, Said},
    errand::{Errand, Request},
    spoken::{Line, Spoken},
};
use crate::{client::Answer, memory::dice::Dice};

/// Clients at work, and what they were told so far.
pub struct Clientele {
    shared: Arc<Shared>,
    /// Dropped, they end.
    at_work: Mutex<JoinSet<()>>,
    /// How many further requests there were.
    own: AtomicUsize,
}

struct Shared {
    gateways: Vec<(String, SocketAddr)>,
    spoken: Spoken,
    errand: Errand,
    asked: watch::Sender<Vec<Asked>>,
    stop: watch::Sender<bool>,
}

/// How a client takes it when nothing comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Waits, always for the same gateway.
    Patient,
    /// Gives up, and asks the next gateway.
    Hasty,
    /// Often hangs up in the middle.
    Fickle,
}

const PATIENT: Duration = Duration::from_secs(40);
const HASTY: Duration = Duration::from_millis(2500);
const FICKLE: Range<Duration> = Duration::from_millis(3)..Duration::from_millis(300);

/// A client is like the one so many places before it.
const MANNERS: [Manner; 12] = [
    Manner::Patient,
    Manner::Hasty,
    Manner::Hasty,
    Manner::Patient,
    Manner::Fickle,
    Manner::Hasty,
    Manner::Hasty,
    Manner::Patient,
    Manner::Fickle,
    Manner::Hasty,
    Manner::Hasty,
    Manner::Patient,
];

/// Between an answer and the next request of the same client.
const PAUSE: Range<Duration> = Duration::from_millis(2)..Duration::from_millis(12);
/// After a refusal, or a broken connection.
const LATER: Range<Duration> = Duration::from_millis(20)..Duration::from_millis(60);

impl Clientele {
    /// `gateways`: by name, in the order in which they are numbered.
    pub fn start(gateways: Vec<(String, SocketAddr)>, spoken: Spoken, errand: Errand, dice: &Dice) -> Self {
        let shared = Arc::new(Shared {
            gateways,
            spoken,
            errand,
            asked: watch::Sender::default(),
            stop: watch::Sender::new(false),
        });
        let mut at_work = JoinSet::new();
        for number in 0..MANNERS.len() {
            let caller = Caller {
                shared: Arc::clone(&shared),
                number,
                manner: MANNERS[number % MANNERS.len()],
                at: number % shared.gateways.len(),
                dice: Dice::seeded(dice.next()),
            };
            at_work.spawn(caller.calls());
        }
        Self { shared, at_work: Mutex::new(at_work), own: AtomicUsize::new(0) }
    }

    /// One more request, through this gateway, of a client that waits. Gives its name, and goes on.
    pub fn sends(&self, gateway: usize, path: &str, work: Duration) -> String {
        self.sends_for(PATIENT, gateway, path, work)
    }

    /// The same of a client that hangs up after so long.
    pub fn sends_for(&self, patience: Duration, gateway: usize, path: &str, work: Duration) -> String {
        let shared = Arc::clone(&self.shared);
        let id = shared.name(&format!("own-{}", self.own.fetch_add(1, Ordering::Relaxed)), gateway);
        let (name, path) = (id.clone(), path.to_owned());
        let one = async move {
            let ask = shared.errand.own(&path, &name, work);
            let mut line = None;
            shared.asks(&mut line, gateway, ask, patience).await;
        };
        self.at_work.lock().expect("no thread panics here").spawn(one);
        id
    }

    /// Waits for at most so long until what was told shows something.
    pub async fn when(&self, limit: Duration, shows: impl Fn(&[Asked]) -> bool) -> bool {
        let mut asked = self.shared.asked.subscribe();
        timeout(limit, asked.wait_for(|asked| shows(asked))).await.is_ok()
    }

    /// Lets each client finish its request, and gives all that were told.
    ///
    /// # Panics
    /// If a client did.
    pub async fn stop(self) -> Vec<Asked> {
        self.shared.stop.send_replace(true);
        let mut at_work = self.at_work.into_inner().expect("no thread panics here");
        while let Some(ended) = at_work.join_next().await {
            ended.expect("no panic");
        }
        self.shared.asked.borrow().clone()
    }
}

impl Shared {
    /// It says which gateway was asked: behind a guard nobody else knows.
    fn name(&self, what: &str, gateway: usize) -> String {
        format!("{what}@{}", self.gateways[gateway].0)
    }

    /// Asks, and writes down what came of it. The connection stays where it can be used again.
    async fn asks(
        &self,
        line: &mut Option<Line>,
        gateway: usize,
        ask: Request,
        patience: Duration,
    ) -> Option<Answer> {
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
            // The connection goes with the request.
            Ok(Err(_)) | Err(_) => None,
        };
        let told = answer.as_ref().map(|answer| Said {
            status: answer.status,
            outcome: answer.outcome(),
            body: String::from_utf8_lossy(&answer.body).into_owned(),
        });
        let Request { id, operation, path, writes, .. } = ask;
        let completed = Instant::now();
        let asked = Asked { id, operation, path, writes, gateway, invoked, completed, told };
        self.asked.send_modify(|all| all.push(asked));
        answer
    }
}

struct Caller {
    shared: Arc<Shared>,
    number: usize,
    manner: Manner,
    /// The gateway that it asks.
    at: usize,
    dice: Dice,
}

impl Caller {
    async fn calls(mut self) {
        let mut line = None;
        let mut errands = self.shared.errand.begin(self.number);
        for n in 0.. {
            if *self.shared.stop.borrow() {
                return;
            }
            let id = self.shared.name(&format!("c{}-{n}", self.number), self.at);
            let ask = errands.next(&id, &self.dice);
            let answer = self.shared.asks(&mut line, self.at, ask, self.patience()).await;
            errands.hear(answer.as_ref());
            let served = answer.as_ref().is_some_and(|answer| answer.status == 200);
            if answer.is_none() && self.manner != Manner::Patient {
                self.at = (self.at + 1) % self.shared.gateways.len();
                line = None;
            }
            sleep(self.dice.within(if served { &PAUSE } else { &LATER })).await;
        }
    }

    fn patience(&self) -> Duration {
        match self.manner {
            Manner::Patient => PATIENT,
            Manner::Fickle if self.dice.below(10) < 6 => self.dice.within(&FICKLE),
            Manner::Hasty | Manner::Fickle => HASTY,
        }
    }
}
