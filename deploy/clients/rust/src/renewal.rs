//! The background task of one lease: requests it, renews it, and releases it.

use std::{future::pending, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep},
};

use crate::{
    error::{AcquireError, ReleaseError},
    gateway_connection::{GatewayConnection, GatewayResponse, GatewaySet, LeaseApiRequest, Unanswered},
    lease::{Lease, LeaseHandle, LeaseIdentity, Releasing},
    lease_clock::{BootInstant, SharedLeaseClock},
    lease_json::{LeaseRequestBody, LeaseResponseBody},
    lease_state::{LeaseLostError, LeaseUpdate, SharedLeaseState},
};

/// A request for a lease, with its gateways and its clock.
pub(crate) struct PendingLeaseRequest {
    pub(crate) gateways: Arc<GatewaySet>,
    pub(crate) clock: SharedLeaseClock,
    pub(crate) asked: LeaseRequestBody,
    pub(crate) options: LeaseOptions,
}

/// Counts one lease as open, from its request to its release.
pub(crate) struct OpenLease(Arc<watch::Sender<usize>>);

impl OpenLease {
    pub(crate) fn new(open: &Arc<watch::Sender<usize>>) -> Self {
        open.send_modify(|open| *open += 1);
        Self(open.clone())
    }
}

impl Drop for OpenLease {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// The options of a lease that only the client knows; the gateway is not sent them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeaseOptions {
    pub(crate) notice: Option<Duration>,
    /// `Some`: the lease waits in the queue. `Some(Some(_))`: for at most this time.
    pub(crate) queue: Option<Option<Duration>>,
    pub(crate) watched: bool,
    pub(crate) kept_until_released: bool,
}

/// The task that renews a lease.
struct LeaseRenewalTask {
    line: GatewayConnection,
    gateways: Arc<GatewaySet>,
    clock: SharedLeaseClock,
    told: LeaseIdentity,
    options: LeaseOptions,
    /// The revision of the lease in the answer that granted it; a watch reports the changes after it.
    revision: u64,
}

/// Follows a lease over a connection of its own, so that its end and its revocation are known at once.
struct LeaseWatch {
    line: GatewayConnection,
    clock: SharedLeaseClock,
    handle: LeaseHandle,
    notice: Option<Duration>,
    seen: u64,
}

/// The state of a lease that follows from one answer.
struct RenewalTiming {
    proven: LeaseUpdate,
    /// The time that the gateway has promised, before the notice is subtracted.
    held_for: Duration,
    revision: u64,
}

/// The time limit for an answer. For a request that waits for another holder it is added to the wait.
const ANSWER: Duration = Duration::from_secs(5);
/// With several gateways, a renewal without an answer after this time is sent again, to another gateway.
const LONGEST_RENEWAL: Duration = Duration::from_secs(1);
/// The least time that a renewal waits for its answer.
const SHORTEST_RENEWAL: Duration = Duration::from_millis(200);
/// The shortest pause before a request without a result is repeated, for a request in progress and for a watch.
const PAUSE: Duration = Duration::from_millis(250);
/// The seconds that the gateway holds back the answer to one watch while the lease does not change.
const WATCH: u64 = 20;

/// Runs one lease, from its request to its end.
pub(crate) async fn lease(
    applied: PendingLeaseRequest,
    mut told: oneshot::Sender<Result<Lease, AcquireError>>,
    _open: OpenLease,
) {
    let mut line = GatewayConnection::new(applied.gateways.clone());
    // The handle of a lease that waits in the queue, or that was granted and has not been returned to the caller yet.
    let mut waiting = None;
    let granted = tokio::select! {
        // The answer is checked first, so that a lease that is granted while the caller drops the request is still
        // released.
        biased;
        granted = applied.granted(&mut line, &mut waiting) => Some(granted),
        // The caller has dropped the request. The connection is closed, and the gateway removes the request from the
        // queue.
        () = told.closed() => None,
    };
    let begun = match granted {
        Some(Ok((document, asked))) => applied.begin(line, document, asked, waiting).await,
        failed => {
            if let Some(waiting) = waiting {
                drop(release(&mut line, applied.gateways.len(), &waiting).await);
            }
            match failed {
                Some(Err(not_leased)) => Err(not_leased),
                _ => return,
            }
        }
    };
    match begun {
        Ok((renewing, word)) => {
            let (back, release_request) = oneshot::channel();
            let lease = Lease { word: word.clone(), told: renewing.told.clone(), back: Some(back) };
            // If the caller has dropped the receiver, the lease is dropped here, and its drop releases it.
            drop(told.send(Ok(lease)));
            renewing.until_the_end(&word, release_request).await;
        }
        Err(not_leased) => drop(told.send(Err(not_leased))),
    }
}

impl PendingLeaseRequest {
    /// Requests the lease, and returns it as the gateway describes it, with the moment before the request was sent.
    async fn granted(
        &self,
        line: &mut GatewayConnection,
        waiting: &mut Option<LeaseHandle>,
    ) -> Result<(LeaseResponseBody, BootInstant), AcquireError> {
        let late = self.options.queue.flatten().map(|longest| Instant::now() + longest);
        let body = serde_json::to_vec(&self.asked).expect("plain fields serialise").into();
        let in_queue = self.options.queue.is_some();
        let name = random_name();
        let path = String::new();
        let question =
            LeaseApiRequest { method: Method::POST, path, lease: None, name: Some(&name), in_queue, body };
        let (mut answer, mut asked) = self.ask_until_decided(line, &question).await?;
        loop {
            let document: LeaseResponseBody = match answer.status {
                status if status.is_success() => answer.read().map_err(AcquireError::Unanswered)?,
                StatusCode::LOCKED => return Err(self.locked()),
                status => return Err(refused(status, &answer)),
            };
            if let Some(handle) = LeaseHandle::new(&document) {
                *waiting = Some(handle);
            }
            if !document.is_waiting() {
                return match document.why {
                    _ if document.is_held() => Ok((document, asked)),
                    Some(why) if why == "locked" => Err(self.locked()),
                    why => {
                        Err(AcquireError::Over { why: why.unwrap_or_else(|| "no word of why".to_owned()) })
                    }
                };
            }
            let left = late.map(|late| late.saturating_duration_since(Instant::now()));
            let Some(handle) = waiting.as_ref().filter(|_| left != Some(Duration::ZERO)) else {
                return Err(self.locked());
            };
            (answer, asked) = self.wait_in_queue(line, handle, &document, left).await?;
        }
    }

    /// Sends a request with a name, and repeats it under this name while the gateway answers that an earlier request of
    /// the same name is in progress, because the earlier request may be granted the lease. The time limit applies to
    /// all of the requests together. Returns the answer, and the moment before its request was sent.
    async fn ask_until_decided(
        &self,
        line: &mut GatewayConnection,
        question: &LeaseApiRequest<'_>,
    ) -> Result<(GatewayResponse, BootInstant), AcquireError> {
        let longest = Duration::from_millis(self.asked.wait_ms.unwrap_or_default()).saturating_add(ANSWER);
        let limit = Instant::now().checked_add(longest);
        let left = || limit.map_or(longest, |limit| limit.saturating_duration_since(Instant::now()));
        loop {
            let asked = self.clock.now();
            let answer = line.ask(question, sleep(left())).await.map_err(AcquireError::Unanswered)?;
            let pause = answer.retry_after.unwrap_or_default().max(PAUSE);
            if !answer.is_in_progress() || left() <= pause {
                return Ok((answer, asked));
            }
            sleep(pause).await;
        }
    }

    fn locked(&self) -> AcquireError {
        AcquireError::Locked { keys: self.asked.keys.clone() }
    }

    /// Waits until the lease has changed or a renewal is due; then the lease is renewed, and the answer has its state.
    async fn wait_in_queue(
        &self,
        line: &mut GatewayConnection,
        handle: &LeaseHandle,
        document: &LeaseResponseBody,
        left: Option<Duration>,
    ) -> Result<(GatewayResponse, BootInstant), AcquireError> {
        let turn = (Duration::from_millis(document.ttl_ms) / 3).min(left.unwrap_or(Duration::MAX));
        let seconds = turn.as_secs().min(WATCH);
        if seconds == 0 {
            sleep(turn.min(PAUSE)).await;
        } else {
            let asked = self.clock.now();
            let limit = Duration::from_secs(seconds) + ANSWER;
            if let Ok(answer) = line.ask(&handle.watch(document.revision, seconds), sleep(limit)).await
                && let Ok(now) = answer.read::<LeaseResponseBody>()
                && answer.status.is_success()
                && !now.is_waiting()
            {
                return Ok((answer, asked));
            }
        }
        let asked = self.clock.now();
        let answer = line.ask(&handle.renewal(), sleep(ANSWER)).await.map_err(AcquireError::Unanswered)?;
        Ok((answer, asked))
    }

    /// Begins the renewals. The promised time counts from the moment of the request, which may have waited long. If
    /// half of it has passed, the lease is renewed once before it is returned.
    async fn begin(
        self,
        line: GatewayConnection,
        document: LeaseResponseBody,
        asked: BootInstant,
        waiting: Option<LeaseHandle>,
    ) -> Result<(LeaseRenewalTask, Arc<SharedLeaseState>), AcquireError> {
        let Self { gateways, clock, options, .. } = self;
        let mut promise = RenewalTiming::new(&document, asked, options.notice);
        let unreadable =
            || AcquireError::Unanswered("the gateway tells no id or no token of the lease".into());
        let revision = document.revision;
        let told = LeaseIdentity::new(document, waiting).ok_or_else(unreadable)?;
        let mut renewing = LeaseRenewalTask { line, gateways, clock: clock.clone(), told, options, revision };
        if clock.now().until(asked.after(promise.held_for)) <= promise.held_for / 2 {
            match renewing.asked_once(clock.now().after(ANSWER)).await {
                Ok(next) => promise = next,
                Err(RenewalError::Over) => return Err(AcquireError::TooLate(LeaseLostError::Ended)),
                Err(RenewalError::Untold) => return Err(renewing.too_late().await),
            }
        }
        if clock.now() >= promise.proven.until {
            return Err(renewing.too_late().await);
        }
        Ok((renewing, Arc::new(SharedLeaseState::of(promise.proven, clock))))
    }
}

/// The reason for which a renewal does not extend the deadline.
enum RenewalError {
    /// The lease is over.
    Over,
    /// There was no answer, or one that does not decide about the lease.
    Untold,
}

impl LeaseRenewalTask {
    async fn until_the_end(
        mut self,
        word: &SharedLeaseState,
        mut release_request: oneshot::Receiver<Releasing>,
    ) {
        let watch = self.options.watched.then(|| self.watch());
        let watching = async {
            match watch {
                Some(watch) => watch.ended(word).await,
                None => pending().await,
            }
        };
        let release_request = tokio::select! {
            biased;
            release_request = &mut release_request => release_request,
            lost = async { tokio::select! { lost = self.renews(word) => lost, lost = watching => lost } } => {
                word.ends(lost);
                // The holder may need the time of the notice to stop, and releases the lease when it has stopped. Until
                // then the task waits, without renewing.
                release_request.await
            }
        };
        word.ends(LeaseLostError::Released);
        let given_back = self.gives_back().await;
        if let Ok(releasing) = release_request {
            // Sending fails only if the caller has dropped the receiver of the result.
            releasing.send(given_back).ok();
        }
    }

    /// Renews the lease until it is lost or the gateway reports that it is over. Returns the reason.
    async fn renews(&mut self, word: &SharedLeaseState) -> LeaseLostError {
        let mut unanswered = 0;
        // The deadline by the latest answer of the gateway. It is also kept while a lost lease is renewed.
        let mut promised = word.until();
        loop {
            promised = promised.max(word.until());
            let now = self.clock.now();
            let next = now.after(renewal_pause(now.until(promised), unanswered));
            self.clock.reaches(next).await;
            if let Err(lost) = word.remaining()
                && !self.goes_on_after(lost)
            {
                return lost;
            }
            let asked = self.clock.now();
            let limit = asked.after(self.patience(asked.until(promised)));
            match self.asked_once(limit).await {
                Ok(RenewalTiming { proven, .. }) => {
                    unanswered = 0;
                    promised = promised.max(proven.until);
                    if let Err(lost) = word.record_renewal(proven)
                        && !self.goes_on_after(lost)
                    {
                        return lost;
                    }
                }
                Err(RenewalError::Over) => return LeaseLostError::Ended,
                Err(RenewalError::Untold) => unanswered += 1,
            }
        }
    }

    /// Whether a lease that was lost for this reason is still renewed.
    fn goes_on_after(&self, lost: LeaseLostError) -> bool {
        self.options.kept_until_released && lost == LeaseLostError::NotRenewed
    }

    /// The time that a renewal waits for its answer. It leaves time to try another connection.
    fn patience(&self, left: Duration) -> Duration {
        let longest = if self.gateways.len() > 1 { LONGEST_RENEWAL } else { Duration::MAX };
        (left / 3).min(longest).max(SHORTEST_RENEWAL)
    }

    /// Renews once, and waits for the answer until `limit`.
    async fn asked_once(&mut self, limit: BootInstant) -> Result<RenewalTiming, RenewalError> {
        let asked = self.clock.now();
        let answer = self.line.ask(&self.told.handle.renewal(), self.clock.reaches(limit)).await;
        RenewalTiming::from_answer(answer, asked, self.options.notice)
    }

    fn watch(&self) -> LeaseWatch {
        LeaseWatch {
            line: GatewayConnection::new(self.gateways.clone()),
            clock: self.clock.clone(),
            handle: self.told.handle.clone(),
            notice: self.options.notice,
            seen: self.revision,
        }
    }

    async fn gives_back(&mut self) -> Result<(), ReleaseError> {
        release(&mut self.line, self.gateways.len(), &self.told.handle).await
    }

    /// Releases a lease that was granted too late to be used.
    async fn too_late(&mut self) -> AcquireError {
        drop(self.gives_back().await);
        AcquireError::TooLate(LeaseLostError::NotRenewed)
    }
}

impl LeaseWatch {
    /// Returns when the gateway reports that the lease is over. An answer after the deadline changes nothing.
    async fn ended(mut self, word: &SharedLeaseState) -> LeaseLostError {
        loop {
            let asked = self.clock.now();
            let limit = sleep(Duration::from_secs(WATCH) + ANSWER);
            let answer = self.line.ask(&self.handle.watch(self.seen, WATCH), limit).await;
            match RenewalTiming::from_answer(answer, asked, self.notice) {
                Ok(RenewalTiming { proven, revision, .. }) => {
                    self.seen = revision;
                    word.record_renewal(proven).ok();
                }
                Err(RenewalError::Over) => return LeaseLostError::Ended,
                Err(RenewalError::Untold) => sleep(PAUSE).await,
            }
        }
    }
}

/// The pause before the next renewal: a sixth of the time that is left, because the notice takes part of that time and
/// an answer may be lost. Without any time left, the pause doubles with each unanswered request.
fn renewal_pause(left: Duration, unanswered: u32) -> Duration {
    let shortest = Duration::from_millis(50);
    let longest = Duration::from_secs(5);
    let unanswered = if left.is_zero() { unanswered } else { 0 };
    let backed_off = shortest.saturating_mul(1_u32.checked_shl(unanswered).unwrap_or(u32::MAX));
    (left / 6).max(backed_off).clamp(shortest, longest)
}

/// Releases a lease: asks each gateway in turn until one has a result. Each gateway gets a share of the time limit, so
/// that a silent gateway does not keep the others from being asked.
async fn release(
    line: &mut GatewayConnection,
    gateways: usize,
    handle: &LeaseHandle,
) -> Result<(), ReleaseError> {
    let late = Instant::now() + ANSWER;
    let mut result = Err(ReleaseError::Abandoned);
    for left in (1..=gateways).rev() {
        let share = late.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(u32::MAX);
        result = match line.ask(&handle.question(Method::DELETE, ""), sleep(share)).await {
            Ok(answer) if answer.status.is_success() => return Ok(()),
            Ok(answer) => {
                let reason = answer.problem().reason;
                let refused = Err(ReleaseError::Refused { status: answer.status.as_u16(), reason });
                if !answer.is_retryable() {
                    return refused;
                }
                refused
            }
            Err(unanswered) => Err(ReleaseError::Unanswered(unanswered)),
        };
    }
    result
}

fn refused(status: StatusCode, answer: &GatewayResponse) -> AcquireError {
    let problem = answer.problem();
    let status = status.as_u16();
    let reason = problem.reason;
    let detail = problem.detail.unwrap_or(problem.title);
    AcquireError::Refused { status, reason, detail, retry_after: answer.retry_after }
}

/// A random value for `Idempotency-Key`, which no other request has.
fn random_name() -> HeaderValue {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes once it has booted");
    HeaderValue::from_str(&format!("{:032x}", u128::from_be_bytes(bytes))).expect("hexadecimal digits")
}

impl LeaseHandle {
    /// `None` if the document has no id: the lease belongs to another client.
    fn new(document: &LeaseResponseBody) -> Option<Self> {
        let mut id = HeaderValue::from_str(document.lease.as_deref()?).ok()?;
        id.set_sensitive(true);
        Some(Self { reference: document.reference.as_str().into(), id })
    }

    fn question(&self, method: Method, below: &str) -> LeaseApiRequest<'_> {
        let path = format!("/{}{below}", self.reference);
        LeaseApiRequest {
            method,
            path,
            lease: Some(&self.id),
            name: None,
            in_queue: false,
            body: Bytes::new(),
        }
    }

    fn renewal(&self) -> LeaseApiRequest<'_> {
        self.question(Method::POST, "/renew")
    }

    /// A request that is answered when the lease has changed since revision `seen`, or after `seconds`.
    fn watch(&self, seen: u64, seconds: u64) -> LeaseApiRequest<'_> {
        self.question(Method::GET, &format!("?watch={seconds}&seen={seen}"))
    }
}

impl LeaseIdentity {
    /// `handle`: the handle from an earlier answer, used if this document has no id.
    fn new(document: LeaseResponseBody, handle: Option<LeaseHandle>) -> Option<Self> {
        let handle = LeaseHandle::new(&document).or(handle)?;
        let token = document.token?.into();
        Some(Self { handle, token, number: document.number?, permit: document.permit })
    }
}

impl RenewalTiming {
    /// `asked`: a moment before the request was sent.
    fn new(document: &LeaseResponseBody, asked: BootInstant, notice: Option<Duration>) -> Self {
        let held_for = Duration::from_millis(document.held_for_ms.unwrap_or_default());
        let notice = notice.unwrap_or(held_for / 10).min(held_for / 2);
        let [revocation, ticket] =
            [&document.revocation, &document.ticket].map(|text| text.as_deref().map(Arc::from));
        let until = asked.after(held_for - notice);
        let revision = document.revision;
        Self { proven: LeaseUpdate { until, revocation, ticket }, held_for, revision }
    }

    /// Reads the answer to a renewal or a watch. A client error (4xx) means that the lease is over. A server error does
    /// not, because it may come from a starting gateway or a balancer while another gateway has the lease.
    fn from_answer(
        answer: Result<GatewayResponse, Unanswered>,
        asked: BootInstant,
        notice: Option<Duration>,
    ) -> Result<Self, RenewalError> {
        let answer = answer.map_err(|_| RenewalError::Untold)?;
        if answer.status.is_client_error()
            && !answer.is_retryable()
            && answer.status != StatusCode::REQUEST_TIMEOUT
        {
            return Err(RenewalError::Over);
        }
        // A redirect, or a page of a balancer, does not decide about the lease.
        let document = Some(answer).filter(|answer| answer.status.is_success());
        let document = document.and_then(|answer| answer.read::<LeaseResponseBody>().ok());
        let document = document.ok_or(RenewalError::Untold)?;
        if !document.is_held() {
            return Err(RenewalError::Over);
        }
        Ok(Self::new(&document, asked, notice))
    }
}

#[cfg(test)]
mod tests;
