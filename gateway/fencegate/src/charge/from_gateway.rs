//! Takes a lock as a lease from the HTTP interface of a gateway, and renews it there.

use std::time::Duration;

use fencegate_policies::key::ResourceKey;
use fencegate_process::clock::{BootInstant, Clock, MachineClock};
use hyper::StatusCode;
use serde_json::json;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    asked_lock::{Access, AcquireLockError, CommandLockInfo, LockSpec, LockStatus, WaitPolicy},
    lease_client::{GatewayEndpoints, LeaseClient, LeaseRef, LeaseResponse},
    renewals::RenewalSchedule,
};
use crate::leases::lease_json::{HELD, LeaseDocument, WAITING};

/// The gateways of one installation that may be asked.
pub struct GatewayLeaseSource {
    gateways: GatewayEndpoints,
    client: LeaseClient,
    /// How long a lease lives without a renewal. Default: the one of the gateways.
    ttl: Option<Duration>,
    /// A note that others see when they ask who holds the lock.
    note: Option<String>,
    /// A lease that was requested and has not reached the caller yet.
    open: Option<LeaseRef>,
}

/// A lease that a gateway holds for this process.
#[derive(Debug)]
pub(super) struct RemoteLease {
    shown: CommandLockInfo,
    lease: LeaseRef,
    stands: watch::Receiver<LockStatus>,
    renewals: RenewalSchedule,
    gateways: GatewayEndpoints,
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

impl GatewayLeaseSource {
    pub fn of(gateways: GatewayEndpoints, ttl: Option<Duration>, note: Option<String>) -> Self {
        let client = LeaseClient::of(&gateways);
        Self { gateways, client, ttl, note, open: None }
    }

    pub(super) async fn take(&mut self, wanted: &LockSpec) -> Result<RemoteLease, AcquireLockError> {
        let late = match wanted.wait {
            WaitPolicy::For(wait) => Some(Instant::now() + wait),
            WaitPolicy::Forever => None,
        };
        loop {
            let refused = match self.attempt(wanted, late).await {
                Ok(held) => return Ok(held),
                Err(refused) => refused,
            };
            self.forget().await;
            let again = late.is_none_or(|late| Instant::now() + PAUSE < late);
            match refused {
                AcquireLockError::Unavailable { .. } if again => sleep(PAUSE).await,
                refused => return Err(refused),
            }
        }
    }

    /// Waits in line with one lease.
    async fn attempt(
        &mut self,
        wanted: &LockSpec,
        late: Option<Instant>,
    ) -> Result<RemoteLease, AcquireLockError> {
        let key = &wanted.key;
        let left = || late.map(|late| late.saturating_duration_since(Instant::now()));
        let mode = match wanted.access {
            Access::Exclusive => "exclusive",
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
            let name = LeaseRef::of(&lease).or(self.open.take()).ok_or_else(|| unavailable(key, "no id"))?;
            self.open = Some(name.clone());
            match lease.state.as_str() {
                HELD => {
                    let (lease, sent) = self.renewed(key, &name, lease, sent).await?;
                    return self.held(key, name, &lease, sent);
                }
                WAITING => {}
                _ if lease.why.as_deref() == Some("locked") => {
                    return Err(AcquireLockError::Held(key.clone()));
                }
                _ => return Err(unavailable(key, lease.why.as_deref().unwrap_or("the lease is over"))),
            }
            if left() == Some(Duration::ZERO) {
                return Err(AcquireLockError::Held(key.clone()));
            }
            told = self.stands_in_line(&name, &lease, left()).await;
        }
    }

    /// Returns when the lease has changed, or when it is time for a renewal, whose answer also tells the state.
    async fn stands_in_line(
        &mut self,
        name: &LeaseRef,
        lease: &LeaseDocument,
        left: Option<Duration>,
    ) -> LeaseResponse {
        let turn = (Duration::from_millis(lease.ttl_ms) / 3).min(left.unwrap_or(Duration::MAX));
        let seconds = turn.as_secs().min(WATCH);
        if seconds == 0 {
            sleep(turn.min(PAUSE)).await;
        } else {
            let told = self
                .client
                .watches(name, lease.revision, seconds, Duration::from_secs(seconds) + ANSWER)
                .await;
            if let LeaseResponse::Lease(now, _) = &told
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
        name: &LeaseRef,
        lease: LeaseDocument,
        sent: BootInstant,
    ) -> Result<(LeaseDocument, BootInstant), AcquireLockError> {
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
        lease: LeaseRef,
        document: &LeaseDocument,
        sent: BootInstant,
    ) -> Result<RemoteLease, AcquireLockError> {
        let (Some(token), Some(number)) = (document.token, document.number) else {
            return Err(unavailable(key, "a lease without a token"));
        };
        self.open = None;
        let (lease_id, permit) = (Some(lease.id.clone()), document.permit.map(u32::from));
        let shown = CommandLockInfo { token: token.to_string(), number, lease: lease_id, permit };
        let stands = standing(document, sent);
        let renewals = RenewalSchedule::of_lease(until(&stands).since(MachineClock.now()));
        let (told, stands) = watch::channel(stands);
        let mut renewed = JoinSet::new();
        renewed.spawn(renew(LeaseClient::of(&self.gateways), lease.clone(), told.clone()));
        renewed.spawn(watch(LeaseClient::of(&self.gateways), lease.clone(), told, document.revision));
        Ok(RemoteLease { shown, lease, stands, renewals, gateways: self.gateways.clone(), _renewed: renewed })
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
async fn renew(mut client: LeaseClient, lease: LeaseRef, told: watch::Sender<LockStatus>) {
    let mut unheard = 0;
    loop {
        let left = until(&told.borrow()).since(MachineClock.now());
        sleep(pause(left, unheard)).await;
        if *told.borrow() == LockStatus::Lost {
            return;
        }
        let patience = RENEWAL.min(left / 3).max(Duration::from_millis(200));
        match client.renews(&lease, patience).await {
            LeaseResponse::Lease(document, sent) => {
                unheard = 0;
                tell(&told, standing(&document, sent));
            }
            LeaseResponse::Refused(..) => return tell(&told, LockStatus::Lost),
            // The proof that there is ends by itself.
            LeaseResponse::NoAnswer(_) => unheard += 1,
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
async fn watch(mut client: LeaseClient, lease: LeaseRef, told: watch::Sender<LockStatus>, mut seen: u64) {
    loop {
        match client.watches(&lease, seen, WATCH, Duration::from_secs(WATCH) + ANSWER).await {
            LeaseResponse::Lease(document, sent) => {
                seen = document.revision;
                tell(&told, standing(&document, sent));
            }
            LeaseResponse::Refused(..) => tell(&told, LockStatus::Lost),
            LeaseResponse::NoAnswer(_) => sleep(PAUSE).await,
        }
        if *told.borrow() == LockStatus::Lost {
            return;
        }
    }
}

/// A lost lock never comes back, and a late answer never shortens the proof.
fn tell(told: &watch::Sender<LockStatus>, news: LockStatus) {
    told.send_modify(|stands| {
        let until = until(stands).max(until(&news));
        *stands = match (&*stands, news) {
            (LockStatus::Lost, _) | (_, LockStatus::Lost) => LockStatus::Lost,
            (LockStatus::Revoked(_), _) | (_, LockStatus::Revoked(_)) => LockStatus::Revoked(until),
            (LockStatus::Proven(_), LockStatus::Proven(_)) => LockStatus::Proven(until),
        };
    });
}

fn until(stands: &LockStatus) -> BootInstant {
    match stands {
        LockStatus::Proven(until) | LockStatus::Revoked(until) => *until,
        LockStatus::Lost => BootInstant::from_nanos(0),
    }
}

/// The proof counts from the moment when the question was sent: the gateway has counted from a later one.
fn standing(document: &LeaseDocument, sent: BootInstant) -> LockStatus {
    let until = document.held_for_ms.map(|held_for| sent + Duration::from_millis(held_for));
    match until.filter(|_| document.state == HELD) {
        None => LockStatus::Lost,
        Some(until) if document.revocation.is_some() => LockStatus::Revoked(until),
        Some(until) => LockStatus::Proven(until),
    }
}

fn document(
    key: &ResourceKey,
    told: LeaseResponse,
) -> Result<(LeaseDocument, BootInstant), AcquireLockError> {
    match told {
        LeaseResponse::Lease(document, sent) => Ok((*document, sent)),
        LeaseResponse::Refused(StatusCode::LOCKED, _) => Err(AcquireLockError::Held(key.clone())),
        // The lease was ours and is over. The next attempt begins anew.
        LeaseResponse::Refused(StatusCode::PRECONDITION_FAILED, why) | LeaseResponse::NoAnswer(why) => {
            Err(unavailable(key, &why))
        }
        LeaseResponse::Refused(_, why) => Err(AcquireLockError::Permanent { key: key.clone(), why }),
    }
}

fn unavailable(key: &ResourceKey, why: &str) -> AcquireLockError {
    AcquireLockError::Unavailable { key: key.clone(), why: why.to_owned() }
}

impl RemoteLease {
    pub(super) fn shown(&self) -> CommandLockInfo {
        self.shown.clone()
    }

    pub(super) fn renewals(&self) -> RenewalSchedule {
        self.renewals
    }

    pub(super) fn stands(&self) -> LockStatus {
        let stands = self.stands.borrow().clone();
        if until(&stands) <= MachineClock.now() { LockStatus::Lost } else { stands }
    }

    pub(super) async fn give_back(self) {
        LeaseClient::of(&self.gateways).gives_back(&self.lease, ANSWER).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::{net::TcpListener, time::timeout};

    use super::{
        super::{answering::FakeGateway, lease_client::GatewayEndpoint},
        *,
    };

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    #[tokio::test]
    async fn a_lease_is_given_back_through_another_gateway_where_some_do_not_answer() {
        // The first gateway takes connections and is silent; nobody is behind the second address.
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (away, last) = (gone.local_addr().expect("bound"), FakeGateway::with(204).await);
        drop(gone);
        let door =
            |address: std::net::SocketAddr| GatewayEndpoint { host: address.to_string(), speaks_tls: false };
        let doors = vec![door(silent.local_addr().expect("bound")), door(away), last.door()];
        let mut client = LeaseClient::of(&GatewayEndpoints { doors, ..last.alone() });
        client.gives_back(&LeaseRef::example(), Duration::from_secs(3)).await;
        assert_eq!(last.asked(), 1);
    }

    /// The gateway cannot reach the gateway that holds the lease.
    #[tokio::test]
    async fn who_has_no_word_for_now_is_not_asked_twice_before_another_one() {
        let (away, last) = (FakeGateway::with(503).await, FakeGateway::with(204).await);
        let mut client =
            LeaseClient::of(&GatewayEndpoints { doors: vec![away.door(), last.door()], ..last.alone() });
        client.gives_back(&LeaseRef::example(), Duration::from_secs(3)).await;
        assert_eq!((away.asked(), last.asked()), (1, 1));
    }

    #[tokio::test]
    async fn who_is_told_that_the_lease_is_gone_asks_no_more() {
        let gateway = FakeGateway::with(412).await;
        let (told, stands) = watch::channel(LockStatus::Proven(MachineClock.now()));
        let client = LeaseClient::of(&gateway.alone());
        let ended = timeout(Duration::from_secs(20), renew(client, LeaseRef::example(), told)).await;
        assert!(ended.is_ok(), "it goes on asking: {} questions", gateway.asked());
        assert_eq!((stands.borrow().clone(), gateway.asked()), (LockStatus::Lost, 1));
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
        let (told, stands) = watch::channel(LockStatus::Proven(at(900)));
        tell(&told, LockStatus::Proven(at(500)));
        assert_eq!(*stands.borrow(), LockStatus::Proven(at(900)));
        tell(&told, LockStatus::Revoked(at(1000)));
        tell(&told, LockStatus::Proven(at(1100)));
        assert_eq!(*stands.borrow(), LockStatus::Revoked(at(1100)));
        tell(&told, LockStatus::Lost);
        tell(&told, LockStatus::Proven(at(2000)));
        assert_eq!(*stands.borrow(), LockStatus::Lost);
    }
}
