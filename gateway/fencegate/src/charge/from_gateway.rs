//! Takes a lock as a lease from the HTTP interface of a gateway, and renews it there.

use std::time::Duration;

use fencegate_policies::key::ResourceKey;
use fencegate_process::clock::{Boot, Clock, MachineClock};
use hyper::StatusCode;
use serde_json::json;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    asked_lock::{Access, LockStands, LockWait, NoLock, ShownLock, WantedLock},
    lease_client::{Gateways, LeaseAnswer, LeaseClient, LeaseName},
    renewals::Renewals,
};
use crate::leases::lease_json::{HELD, LeaseDocument, WAITING};

/// The gateways of one installation that may be asked.
pub struct FromGateway {
    gateways: Gateways,
    client: LeaseClient,
    /// How long a lease lives without a renewal. Default: the one of the gateways.
    ttl: Option<Duration>,
    /// A note that others see when they ask who holds the lock.
    note: Option<String>,
    /// A lease that was requested and has not reached the caller yet.
    open: Option<LeaseName>,
}

/// A lease that a gateway holds for this process.
#[derive(Debug)]
pub(super) struct HeldThere {
    shown: ShownLock,
    lease: LeaseName,
    stands: watch::Receiver<LockStands>,
    renewals: Renewals,
    gateways: Gateways,
    /// The tasks that renew and watch the lease, as long as this lives.
    _renewed: JoinSet<()>,
}

/// The pause between two attempts while no gateway can tell.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest wait for an answer, beside the wait that was asked for.
const ANSWER: Duration = Duration::from_secs(3);
/// A renewal without an answer for so long is sent again, to another gateway.
const RENEWAL: Duration = Duration::from_secs(1);
/// How many seconds one question waits for a change of the lease.
const WATCH: u64 = 20;

impl FromGateway {
    pub fn of(gateways: Gateways, ttl: Option<Duration>, note: Option<String>) -> Self {
        let client = LeaseClient::of(&gateways);
        Self { gateways, client, ttl, note, open: None }
    }

    pub(super) async fn take(&mut self, wanted: &WantedLock) -> Result<HeldThere, NoLock> {
        let late = match wanted.wait {
            LockWait::For(wait) => Some(Instant::now() + wait),
            LockWait::AsLongAsItTakes => None,
        };
        loop {
            let refused = match self.attempt(wanted, late).await {
                Ok(held) => return Ok(held),
                Err(refused) => refused,
            };
            self.forget().await;
            let again = late.is_none_or(|late| Instant::now() + PAUSE < late);
            match refused {
                NoLock::Unavailable { .. } if again => sleep(PAUSE).await,
                refused => return Err(refused),
            }
        }
    }

    /// Waits in line with one lease.
    async fn attempt(&mut self, wanted: &WantedLock, late: Option<Instant>) -> Result<HeldThere, NoLock> {
        let key = &wanted.key;
        let left = || late.map(|late| late.saturating_duration_since(Instant::now()));
        let mode = match wanted.access {
            Access::Alone => "exclusive",
            Access::Shared => "shared",
        };
        let mut body = json!({"keys": [key.as_str()], "mode": mode, "note": self.note});
        if let Some(ttl) = self.ttl {
            body["ttl_ms"] = json!(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        }
        // A request that does not wait is answered at once.
        let in_line = left() != Some(Duration::ZERO);
        let mut told = self.client.asks(&body, in_line, ANSWER).await;
        loop {
            let (lease, sent) = document(key, told)?;
            let name = LeaseName::of(&lease).or(self.open.take()).ok_or_else(|| unavailable(key, "no id"))?;
            self.open = Some(name.clone());
            match lease.state.as_str() {
                HELD => {
                    let (lease, sent) = self.renewed(key, &name, lease, sent).await?;
                    return self.held(key, name, &lease, sent);
                }
                WAITING => {}
                _ if lease.why.as_deref() == Some("locked") => {
                    return Err(NoLock::HeldByAnother(key.clone()));
                }
                _ => return Err(unavailable(key, lease.why.as_deref().unwrap_or("the lease is over"))),
            }
            if left() == Some(Duration::ZERO) {
                return Err(NoLock::HeldByAnother(key.clone()));
            }
            told = self.stands_in_line(&name, &lease, left()).await;
        }
    }

    /// Returns when the lease has changed, or when it is time for a renewal, whose answer also tells the state.
    async fn stands_in_line(
        &mut self,
        name: &LeaseName,
        lease: &LeaseDocument,
        left: Option<Duration>,
    ) -> LeaseAnswer {
        let turn = (Duration::from_millis(lease.ttl_ms) / 3).min(left.unwrap_or(Duration::MAX));
        let seconds = turn.as_secs().min(WATCH);
        if seconds == 0 {
            sleep(turn.min(PAUSE)).await;
        } else {
            let told = self
                .client
                .watches(name, lease.revision, seconds, Duration::from_secs(seconds) + ANSWER)
                .await;
            if let LeaseAnswer::Lease(now, _) = &told
                && now.state != WAITING
            {
                return told;
            }
        }
        self.client.renews(name, ANSWER).await
    }

    /// The document of a lease of which enough is left for a command. The promised time counts from the question, which
    /// may have waited for longer than that. Then one renewal comes first.
    async fn renewed(
        &mut self,
        key: &ResourceKey,
        name: &LeaseName,
        lease: LeaseDocument,
        sent: Boot,
    ) -> Result<(LeaseDocument, Boot), NoLock> {
        let promised = Duration::from_millis(lease.held_for_ms.unwrap_or(0));
        if (sent + promised).since(MachineClock.now()) > promised / 2 {
            return Ok((lease, sent));
        }
        let (lease, sent) = document(key, self.client.renews(name, ANSWER).await)?;
        if until(&standing(&lease, sent)) <= MachineClock.now() {
            return Err(unavailable(key, "the lease was over before the command could be started"));
        }
        Ok((lease, sent))
    }

    fn held(
        &mut self,
        key: &ResourceKey,
        lease: LeaseName,
        document: &LeaseDocument,
        sent: Boot,
    ) -> Result<HeldThere, NoLock> {
        let (Some(token), Some(number)) = (document.token, document.number) else {
            return Err(unavailable(key, "a lease without a token"));
        };
        self.open = None;
        let (lease_id, permit) = (Some(lease.id.clone()), document.permit.map(u32::from));
        let shown = ShownLock { token: token.to_string(), number, lease: lease_id, permit };
        let stands = standing(document, sent);
        let renewals = Renewals::of_lease(until(&stands).since(MachineClock.now()));
        let (told, stands) = watch::channel(stands);
        let mut renewed = JoinSet::new();
        renewed.spawn(renew(LeaseClient::of(&self.gateways), lease.clone(), told.clone()));
        renewed.spawn(watch(LeaseClient::of(&self.gateways), lease.clone(), told, document.revision));
        Ok(HeldThere { shown, lease, stands, renewals, gateways: self.gateways.clone(), _renewed: renewed })
    }

    /// Releases a lease under which nobody works.
    async fn forget(&mut self) {
        if let Some(lease) = self.open.take() {
            self.client.gives_back(&lease, ANSWER).await;
        }
    }

    pub(super) async fn close(mut self) {
        self.forget().await;
    }
}

/// Renews the lease until a gateway says that it is gone.
async fn renew(mut client: LeaseClient, lease: LeaseName, told: watch::Sender<LockStands>) {
    let mut unheard = 0;
    loop {
        let left = until(&told.borrow()).since(MachineClock.now());
        sleep(pause(left, unheard)).await;
        if *told.borrow() == LockStands::Gone {
            return;
        }
        let patience = RENEWAL.min(left / 3).max(Duration::from_millis(200));
        match client.renews(&lease, patience).await {
            LeaseAnswer::Lease(document, sent) => {
                unheard = 0;
                tell(&told, standing(&document, sent));
            }
            LeaseAnswer::Refused(..) => return tell(&told, LockStands::Gone),
            // The proof that there is ends by itself.
            LeaseAnswer::Silent(_) => unheard += 1,
        }
    }
}

/// The pause between two renewals: a sixth of the time that is proven. The grace of the command takes half of that
/// time, and an answer may be lost. When nothing is proven any more, the pause doubles with each unanswered question.
fn pause(left: Duration, unheard: u32) -> Duration {
    let (shortest, longest) = (Duration::from_millis(50), Duration::from_secs(5));
    let unheard = if left.is_zero() { unheard } else { 0 };
    let backed_off = shortest.saturating_mul(1_u32.checked_shl(unheard).unwrap_or(u32::MAX));
    (left / 6).max(backed_off).clamp(shortest, longest)
}

/// Learns at once that the lease is over or that its holder is asked to release it.
async fn watch(mut client: LeaseClient, lease: LeaseName, told: watch::Sender<LockStands>, mut seen: u64) {
    loop {
        match client.watches(&lease, seen, WATCH, Duration::from_secs(WATCH) + ANSWER).await {
            LeaseAnswer::Lease(document, sent) => {
                seen = document.revision;
                tell(&told, standing(&document, sent));
            }
            LeaseAnswer::Refused(..) => tell(&told, LockStands::Gone),
            LeaseAnswer::Silent(_) => sleep(PAUSE).await,
        }
        if *told.borrow() == LockStands::Gone {
            return;
        }
    }
}

/// A lost lock never comes back, and a late answer never shortens the proof.
fn tell(told: &watch::Sender<LockStands>, news: LockStands) {
    told.send_modify(|stands| {
        let until = until(stands).max(until(&news));
        *stands = match (&*stands, news) {
            (LockStands::Gone, _) | (_, LockStands::Gone) => LockStands::Gone,
            (LockStands::WantedBack(_), _) | (_, LockStands::WantedBack(_)) => LockStands::WantedBack(until),
            (LockStands::Proven(_), LockStands::Proven(_)) => LockStands::Proven(until),
        };
    });
}

fn until(stands: &LockStands) -> Boot {
    match stands {
        LockStands::Proven(until) | LockStands::WantedBack(until) => *until,
        LockStands::Gone => Boot::from_nanos(0),
    }
}

/// The proof counts from the moment when the question was sent: the gateway has counted from a later one.
fn standing(document: &LeaseDocument, sent: Boot) -> LockStands {
    let until = document.held_for_ms.map(|held_for| sent + Duration::from_millis(held_for));
    match until.filter(|_| document.state == HELD) {
        None => LockStands::Gone,
        Some(until) if document.revocation.is_some() => LockStands::WantedBack(until),
        Some(until) => LockStands::Proven(until),
    }
}

fn document(key: &ResourceKey, told: LeaseAnswer) -> Result<(LeaseDocument, Boot), NoLock> {
    match told {
        LeaseAnswer::Lease(document, sent) => Ok((*document, sent)),
        LeaseAnswer::Refused(StatusCode::LOCKED, _) => Err(NoLock::HeldByAnother(key.clone())),
        // The lease was ours and is over. The next attempt begins anew.
        LeaseAnswer::Refused(StatusCode::PRECONDITION_FAILED, why) | LeaseAnswer::Silent(why) => {
            Err(unavailable(key, &why))
        }
        LeaseAnswer::Refused(_, why) => Err(NoLock::Never { key: key.clone(), why }),
    }
}

fn unavailable(key: &ResourceKey, why: &str) -> NoLock {
    NoLock::Unavailable { key: key.clone(), why: why.to_owned() }
}

impl HeldThere {
    pub(super) fn shown(&self) -> ShownLock {
        self.shown.clone()
    }

    pub(super) fn renewals(&self) -> Renewals {
        self.renewals
    }

    pub(super) fn stands(&self) -> LockStands {
        let stands = self.stands.borrow().clone();
        if until(&stands) <= MachineClock.now() { LockStands::Gone } else { stands }
    }

    pub(super) async fn give_back(self) {
        LeaseClient::of(&self.gateways).gives_back(&self.lease, ANSWER).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::{net::TcpListener, time::timeout};

    use super::{
        super::{answering::Answering, lease_client::GatewayDoor},
        *,
    };

    fn at(millis: u64) -> Boot {
        Boot::from_nanos(millis * 1_000_000)
    }

    #[tokio::test]
    async fn a_lease_is_given_back_through_another_gateway_where_some_do_not_answer() {
        // The first gateway takes connections and is silent; nobody is behind the second address.
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (away, last) = (gone.local_addr().expect("bound"), Answering::with(204).await);
        drop(gone);
        let door =
            |address: std::net::SocketAddr| GatewayDoor { host: address.to_string(), speaks_tls: false };
        let doors = vec![door(silent.local_addr().expect("bound")), door(away), last.door()];
        let mut client = LeaseClient::of(&Gateways { doors, ..last.alone() });
        client.gives_back(&LeaseName::example(), Duration::from_secs(3)).await;
        assert_eq!(last.asked(), 1);
    }

    /// The gateway cannot reach the gateway that holds the lease.
    #[tokio::test]
    async fn who_has_no_word_for_now_is_not_asked_twice_before_another_one() {
        let (away, last) = (Answering::with(503).await, Answering::with(204).await);
        let mut client = LeaseClient::of(&Gateways { doors: vec![away.door(), last.door()], ..last.alone() });
        client.gives_back(&LeaseName::example(), Duration::from_secs(3)).await;
        assert_eq!((away.asked(), last.asked()), (1, 1));
    }

    #[tokio::test]
    async fn who_is_told_that_the_lease_is_gone_asks_no_more() {
        let gateway = Answering::with(412).await;
        let (told, stands) = watch::channel(LockStands::Proven(MachineClock.now()));
        let client = LeaseClient::of(&gateway.alone());
        let ended = timeout(Duration::from_secs(20), renew(client, LeaseName::example(), told)).await;
        assert!(ended.is_ok(), "it goes on asking: {} questions", gateway.asked());
        assert_eq!((stands.borrow().clone(), gateway.asked()), (LockStands::Gone, 1));
    }

    #[test]
    fn who_hears_nothing_and_has_nothing_asks_less_and_less_often() {
        let second = Duration::from_secs(1);
        let pauses = [0, 1, 2, 3, 10, 40].map(|unheard| pause(Duration::ZERO, unheard));
        assert_eq!(pauses.map(|pause| pause.as_millis()), [50, 100, 200, 400, 5000, 5000]);
        assert_eq!([pause(6 * second, 0), pause(6 * second, 9)], [second; 2], "it is held yet");
    }

    #[test]
    fn an_answer_that_was_long_on_its_way_takes_nothing_back() {
        let (told, stands) = watch::channel(LockStands::Proven(at(900)));
        tell(&told, LockStands::Proven(at(500)));
        assert_eq!(*stands.borrow(), LockStands::Proven(at(900)));
        tell(&told, LockStands::WantedBack(at(1000)));
        tell(&told, LockStands::Proven(at(1100)));
        assert_eq!(*stands.borrow(), LockStands::WantedBack(at(1100)));
        tell(&told, LockStands::Gone);
        tell(&told, LockStands::Proven(at(2000)));
        assert_eq!(*stands.borrow(), LockStands::Gone);
    }
}
