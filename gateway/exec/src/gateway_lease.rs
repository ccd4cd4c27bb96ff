//! Takes a lock as a lease from the HTTP interface of a gateway, and renews it there.

use std::time::Duration;

use fencegate_policies::key::ResourceKey;
use fencegate_process::clock::{BootInstant, Clock, MachineClock};
use fencegate_protocol::lease_documents::{HELD, LeaseDocument, WAITING};
use hyper::StatusCode;
use serde_json::json;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    lease_client::{GatewayEndpoints, LeaseClient, LeaseHandle, LeaseResponse},
    lock_spec::{
        AcquireLockError, CommandLockInfo, CommandLockSpec, CommandLockStatus, LockAccess, LockWaitPolicy,
    },
    renewals::LockRenewalSchedule,
};

/// The gateways of one installation at which the lease may be requested.
pub struct GatewayLeaseSource {
    gateways: GatewayEndpoints,
    client: LeaseClient,
    /// How long a lease lives without a renewal. Default: the one of the gateways.
    ttl: Option<Duration>,
    /// A note that is shown to others who query the holder of the lock.
    note: Option<String>,
    /// A lease that was requested and has not reached the caller yet.
    open_lease: Option<LeaseHandle>,
}

/// A lease that a gateway holds for this process.
#[derive(Debug)]
pub(super) struct RemoteLease {
    info: CommandLockInfo,
    lease: LeaseHandle,
    status: watch::Receiver<CommandLockStatus>,
    renewals: LockRenewalSchedule,
    gateways: GatewayEndpoints,
    /// The tasks that renew and watch the lease, as long as this lives.
    _renewed: JoinSet<()>,
}

/// The pause between two attempts while no gateway has an answer.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest wait for an answer, in addition to the requested wait.
const ANSWER: Duration = Duration::from_secs(3);
/// A renewal without an answer for so long is sent again, to another gateway.
const RENEWAL: Duration = Duration::from_secs(1);
/// How many seconds one request waits for a change of the lease.
const WATCH: u64 = 20;

impl GatewayLeaseSource {
    pub fn new(gateways: GatewayEndpoints, ttl: Option<Duration>, note: Option<String>) -> Self {
        let client = LeaseClient::new(&gateways);
        Self { gateways, client, ttl, note, open_lease: None }
    }

    pub(super) async fn acquire(
        &mut self,
        wanted: &CommandLockSpec,
    ) -> Result<RemoteLease, AcquireLockError> {
        let late = match wanted.wait {
            LockWaitPolicy::For(wait) => Some(Instant::now() + wait),
            LockWaitPolicy::Forever => None,
        };
        loop {
            let refused = match self.try_acquire(wanted, late).await {
                Ok(held) => return Ok(held),
                Err(refused) => refused,
            };
            self.release_open().await;
            let again = late.is_none_or(|late| Instant::now() + PAUSE < late);
            match refused {
                AcquireLockError::Unavailable { .. } if again => sleep(PAUSE).await,
                refused => return Err(refused),
            }
        }
    }

    /// Waits in the queue with one lease.
    async fn try_acquire(
        &mut self,
        wanted: &CommandLockSpec,
        late: Option<Instant>,
    ) -> Result<RemoteLease, AcquireLockError> {
        let key = &wanted.key;
        let left = || late.map(|late| late.saturating_duration_since(Instant::now()));
        let mode = match wanted.access {
            LockAccess::Exclusive => "exclusive",
            LockAccess::Shared => "shared",
        };
        let mut body = json!({"keys": [key.as_str()], "mode": mode, "note": self.note});
        if let Some(ttl) = self.ttl {
            body["ttl_ms"] = json!(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        }
        // A request that does not wait is answered at once.
        let in_line = left() != Some(Duration::ZERO);
        let mut response = self.client.request_lease(&body, in_line, ANSWER).await;
        loop {
            let (lease, sent) = into_document(key, response)?;
            let name = LeaseHandle::from_document(&lease)
                .or(self.open_lease.take())
                .ok_or_else(|| unavailable(key, "no id"))?;
            self.open_lease = Some(name.clone());
            match lease.state.as_str() {
                HELD => {
                    let (lease, sent) = self.ensure_fresh(key, &name, lease, sent).await?;
                    return self.hold_lease(key, name, &lease, sent);
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
            response = self.wait_in_queue(&name, &lease, left()).await;
        }
    }

    /// Returns when the lease has changed, or when it is time for a renewal, whose answer also has the state.
    async fn wait_in_queue(
        &mut self,
        name: &LeaseHandle,
        lease: &LeaseDocument,
        left: Option<Duration>,
    ) -> LeaseResponse {
        let turn = (Duration::from_millis(lease.ttl_ms) / 3).min(left.unwrap_or(Duration::MAX));
        let seconds = turn.as_secs().min(WATCH);
        if seconds == 0 {
            sleep(turn.min(PAUSE)).await;
        } else {
            let response =
                self.client.watch(name, lease.revision, seconds, Duration::from_secs(seconds) + ANSWER).await;
            if let LeaseResponse::Lease(now, _) = &response
                && now.state != WAITING
            {
                return response;
            }
        }
        self.client.renew(name, ANSWER).await
    }

    /// The document of a lease of which enough is left for a command. The promised time counts from the request,
    /// which may have waited for longer than that. Then one renewal comes first.
    async fn ensure_fresh(
        &mut self,
        key: &ResourceKey,
        name: &LeaseHandle,
        lease: LeaseDocument,
        sent: BootInstant,
    ) -> Result<(LeaseDocument, BootInstant), AcquireLockError> {
        let promised = Duration::from_millis(lease.held_for_ms.unwrap_or(0));
        if (sent + promised).since(MachineClock.now()) > promised / 2 {
            return Ok((lease, sent));
        }
        let (lease, sent) = into_document(key, self.client.renew(name, ANSWER).await)?;
        if proven_until(&lease_status(&lease, sent)) <= MachineClock.now() {
            return Err(unavailable(key, "the lease was over before the command could be started"));
        }
        Ok((lease, sent))
    }

    fn hold_lease(
        &mut self,
        key: &ResourceKey,
        lease: LeaseHandle,
        document: &LeaseDocument,
        sent: BootInstant,
    ) -> Result<RemoteLease, AcquireLockError> {
        let (Some(token), Some(number)) = (document.token, document.number) else {
            return Err(unavailable(key, "a lease without a token"));
        };
        self.open_lease = None;
        let lease_id = Some(lease.id.clone());
        let permit = document.permit.map(u32::from);
        let shown = CommandLockInfo { token: token.to_string(), number, lease: lease_id, permit };
        let stands = lease_status(document, sent);
        let renewals = LockRenewalSchedule::for_lease(proven_until(&stands).since(MachineClock.now()));
        let (sender, stands) = watch::channel(stands);
        let mut renewed = JoinSet::new();
        renewed.spawn(run_renewals(LeaseClient::new(&self.gateways), lease.clone(), sender.clone()));
        renewed.spawn(run_watch(LeaseClient::new(&self.gateways), lease.clone(), sender, document.revision));
        Ok(RemoteLease {
            info: shown,
            lease,
            status: stands,
            renewals,
            gateways: self.gateways.clone(),
            _renewed: renewed,
        })
    }

    /// Releases a lease under which nothing runs.
    async fn release_open(&mut self) {
        if let Some(lease) = self.open_lease.take() {
            self.client.release(&lease, ANSWER).await;
        }
    }

    pub(super) async fn close(mut self) {
        self.release_open().await;
    }
}

/// Renews the lease until a gateway reports that it is gone.
async fn run_renewals(mut client: LeaseClient, lease: LeaseHandle, sender: watch::Sender<CommandLockStatus>) {
    let mut unheard = 0;
    loop {
        let left = proven_until(&sender.borrow()).since(MachineClock.now());
        sleep(renewal_pause(left, unheard)).await;
        if *sender.borrow() == CommandLockStatus::Lost {
            return;
        }
        let patience = RENEWAL.min(left / 3).max(Duration::from_millis(200));
        match client.renew(&lease, patience).await {
            LeaseResponse::Lease(document, sent) => {
                unheard = 0;
                publish_status(&sender, lease_status(&document, sent));
            }
            LeaseResponse::Refused(..) => return publish_status(&sender, CommandLockStatus::Lost),
            // The lock validity ends by itself.
            LeaseResponse::NoAnswer(_) => unheard += 1,
        }
    }
}

/// The pause between two renewals: a sixth of the remaining lock validity. The grace of the command takes half of
/// that time, and an answer may be lost. When the validity is over, the pause doubles with each unanswered request.
fn renewal_pause(left: Duration, unheard: u32) -> Duration {
    let shortest = Duration::from_millis(50);
    let longest = Duration::from_secs(5);
    let unheard = if left.is_zero() { unheard } else { 0 };
    let backed_off = shortest.saturating_mul(1_u32.checked_shl(unheard).unwrap_or(u32::MAX));
    (left / 6).max(backed_off).clamp(shortest, longest)
}

/// Detects at once that the lease is over or that its holder must release it.
async fn run_watch(
    mut client: LeaseClient,
    lease: LeaseHandle,
    sender: watch::Sender<CommandLockStatus>,
    mut seen: u64,
) {
    loop {
        match client.watch(&lease, seen, WATCH, Duration::from_secs(WATCH) + ANSWER).await {
            LeaseResponse::Lease(document, sent) => {
                seen = document.revision;
                publish_status(&sender, lease_status(&document, sent));
            }
            LeaseResponse::Refused(..) => publish_status(&sender, CommandLockStatus::Lost),
            LeaseResponse::NoAnswer(_) => sleep(PAUSE).await,
        }
        if *sender.borrow() == CommandLockStatus::Lost {
            return;
        }
    }
}

/// A lost lock never comes back, and a late answer never shortens the lock validity.
fn publish_status(sender: &watch::Sender<CommandLockStatus>, news: CommandLockStatus) {
    sender.send_modify(|stands| {
        let until = proven_until(stands).max(proven_until(&news));
        *stands = match (&*stands, news) {
            (CommandLockStatus::Lost, _) | (_, CommandLockStatus::Lost) => CommandLockStatus::Lost,
            (CommandLockStatus::Revoked(_), _) | (_, CommandLockStatus::Revoked(_)) => {
                CommandLockStatus::Revoked(until)
            }
            (CommandLockStatus::Proven(_), CommandLockStatus::Proven(_)) => CommandLockStatus::Proven(until),
        };
    });
}

fn proven_until(stands: &CommandLockStatus) -> BootInstant {
    match stands {
        CommandLockStatus::Proven(until) | CommandLockStatus::Revoked(until) => *until,
        CommandLockStatus::Lost => BootInstant::from_nanos(0),
    }
}

/// The lock validity counts from the moment when the request was sent: the gateway has counted from a later one.
fn lease_status(document: &LeaseDocument, sent: BootInstant) -> CommandLockStatus {
    let until = document.held_for_ms.map(|held_for| sent + Duration::from_millis(held_for));
    match until.filter(|_| document.state == HELD) {
        None => CommandLockStatus::Lost,
        Some(until) if document.revocation.is_some() => CommandLockStatus::Revoked(until),
        Some(until) => CommandLockStatus::Proven(until),
    }
}

fn into_document(
    key: &ResourceKey,
    response: LeaseResponse,
) -> Result<(LeaseDocument, BootInstant), AcquireLockError> {
    match response {
        LeaseResponse::Lease(document, sent) => Ok((*document, sent)),
        LeaseResponse::Refused(StatusCode::LOCKED, _) => Err(AcquireLockError::Held(key.clone())),
        // The lease was ours and is over. The next attempt begins anew.
        LeaseResponse::Refused(StatusCode::PRECONDITION_FAILED, reason) | LeaseResponse::NoAnswer(reason) => {
            Err(unavailable(key, &reason))
        }
        LeaseResponse::Refused(_, reason) => {
            Err(AcquireLockError::Permanent { key: key.clone(), why: reason })
        }
    }
}

fn unavailable(key: &ResourceKey, reason: &str) -> AcquireLockError {
    AcquireLockError::Unavailable { key: key.clone(), why: reason.to_owned() }
}

impl RemoteLease {
    pub(super) fn info(&self) -> CommandLockInfo {
        self.info.clone()
    }

    pub(super) fn renewals(&self) -> LockRenewalSchedule {
        self.renewals
    }

    pub(super) fn status(&self) -> CommandLockStatus {
        let stands = self.status.borrow().clone();
        if proven_until(&stands) <= MachineClock.now() { CommandLockStatus::Lost } else { stands }
    }

    pub(super) async fn release(self) {
        LeaseClient::new(&self.gateways).release(&self.lease, ANSWER).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::{net::TcpListener, time::timeout};

    use super::{
        super::{fake_gateway::FakeGateway, lease_client::GatewayEndpoint},
        *,
    };

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    /// A lease is released through another gateway where some do not answer.
    #[tokio::test]
    async fn release_passes_silent_gateways() {
        // The first gateway accepts connections and is silent; nothing listens at the second address.
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let away = gone.local_addr().expect("bound");
        let last = FakeGateway::start(204).await;
        drop(gone);
        let endpoint =
            |address: std::net::SocketAddr| GatewayEndpoint { host: address.to_string(), speaks_tls: false };
        let endpoints = vec![endpoint(silent.local_addr().expect("bound")), endpoint(away), last.endpoint()];
        let mut client = LeaseClient::new(&GatewayEndpoints { endpoints, ..last.endpoints() });
        client.release(&LeaseHandle::example(), Duration::from_secs(3)).await;
        assert_eq!(last.request_count(), 1);
    }

    /// The first gateway answers 503, because it cannot reach the gateway of the lease; another one is tried before
    /// it again.
    #[tokio::test]
    async fn release_moves_on_after_503() {
        let away = FakeGateway::start(503).await;
        let last = FakeGateway::start(204).await;
        let mut client = LeaseClient::new(&GatewayEndpoints {
            endpoints: vec![away.endpoint(), last.endpoint()],
            ..last.endpoints()
        });
        client.release(&LeaseHandle::example(), Duration::from_secs(3)).await;
        assert_eq!((away.request_count(), last.request_count()), (1, 1));
    }

    /// An answer that the lease is gone ends the renewals after this one request.
    #[tokio::test]
    async fn renewals_end_when_lease_is_gone() {
        let gateway = FakeGateway::start(412).await;
        let (sender, stands) = watch::channel(CommandLockStatus::Proven(MachineClock.now()));
        let client = LeaseClient::new(&gateway.endpoints());
        let ended =
            timeout(Duration::from_secs(20), run_renewals(client, LeaseHandle::example(), sender)).await;
        assert!(ended.is_ok(), "it goes on asking: {} questions", gateway.request_count());
        assert_eq!((stands.borrow().clone(), gateway.request_count()), (CommandLockStatus::Lost, 1));
    }

    /// While the lease is held the pause is one second; later it doubles with each failure, up to five seconds.
    #[test]
    fn renewal_pause_grows_while_unanswered() {
        let second = Duration::from_secs(1);
        let pauses = [0, 1, 2, 3, 10, 40].map(|unheard| renewal_pause(Duration::ZERO, unheard));
        assert_eq!(pauses.map(|pause| pause.as_millis()), [50, 100, 200, 400, 5000, 5000]);
        assert_eq!(
            [renewal_pause(6 * second, 0), renewal_pause(6 * second, 9)],
            [second; 2],
            "it is held yet"
        );
    }

    /// An answer that arrives late takes back neither a later deadline nor a revocation nor the loss of the lock.
    #[test]
    fn late_answer_reverts_no_status() {
        let (sender, stands) = watch::channel(CommandLockStatus::Proven(at(900)));
        publish_status(&sender, CommandLockStatus::Proven(at(500)));
        assert_eq!(*stands.borrow(), CommandLockStatus::Proven(at(900)));
        publish_status(&sender, CommandLockStatus::Revoked(at(1000)));
        publish_status(&sender, CommandLockStatus::Proven(at(1100)));
        assert_eq!(*stands.borrow(), CommandLockStatus::Revoked(at(1100)));
        publish_status(&sender, CommandLockStatus::Lost);
        publish_status(&sender, CommandLockStatus::Proven(at(2000)));
        assert_eq!(*stands.borrow(), CommandLockStatus::Lost);
    }
}
