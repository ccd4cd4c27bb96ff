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
    gateway_connection::{GatewayConnection, GatewayRequest, GatewayResponse, GatewaySet, Unanswered},
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

/// One lease, from its request to its release.
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

/// How the client treats a lease; the gateway knows nothing of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeaseOptions {
    pub(crate) notice: Option<Duration>,
    /// `Some`: the lease waits in the queue, for this long at most.
    pub(crate) queue: Option<Option<Duration>>,
    pub(crate) watched: bool,
    pub(crate) kept_until_released: bool,
}

/// The renewing task.
struct LeaseRenewalTask {
    line: GatewayConnection,
    gateways: Arc<GatewaySet>,
    clock: SharedLeaseClock,
    told: LeaseIdentity,
    options: LeaseOptions,
    /// The last change of the lease that was seen before the renewals.
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

/// The times in an answer.
struct RenewalTiming {
    proven: LeaseUpdate,
    /// The time that the gateway has promised, with the notice.
    held_for: Duration,
    revision: u64,
}

/// The time limit for an answer, added to the wait for another holder.
const ANSWER: Duration = Duration::from_secs(5);
/// A renewal without an answer for so long is sent again, to another gateway.
const LONGEST_RENEWAL: Duration = Duration::from_secs(1);
/// The shortest time for an answer to a renewal.
const SHORTEST_RENEWAL: Duration = Duration::from_millis(200);
/// The pause of the queue and of a watch between two questions without an answer.
const PAUSE: Duration = Duration::from_millis(250);
/// How many seconds one question waits for a change of the lease.
const WATCH: u64 = 20;

/// Runs from the question to the end of the lease.
pub(crate) async fn lease(
    applied: PendingLeaseRequest,
    mut told: oneshot::Sender<Result<Lease, AcquireError>>,
    _open: OpenLease,
) {
    let mut line = GatewayConnection::new(applied.gateways.clone());
    // A lease that waits in the queue, or that was granted and is not the caller's yet.
    let mut waiting = None;
    let granted = tokio::select! {
        // The answer is checked first, so that a granted lease is not forgotten if the caller goes at that moment.
        biased;
        granted = applied.granted(&mut line, &mut waiting) => Some(granted),
        // The connection is closed here, and the gateway removes the request from the queue.
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
            // If the caller has gone, the lease is dropped here, and the drop gives it back.
            drop(told.send(Ok(lease)));
            renewing.until_the_end(&word, release_request).await;
        }
        Err(not_leased) => drop(told.send(Err(not_leased))),
    }
}

impl PendingLeaseRequest {
    /// The lease as the gateway describes it, and the time of the question.
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
            GatewayRequest { method: Method::POST, path, lease: None, name: Some(&name), in_queue, body };
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

    /// Sends a request with a name, and again under this name as long as the gateway answers that an earlier one is in
    /// progress: that one may have been granted the lease. The time limit is for all of them together. Returns the
    /// answer, and the moment before the request that it belongs to was sent.
    async fn ask_until_decided(
        &self,
        line: &mut GatewayConnection,
        question: &GatewayRequest<'_>,
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

    /// Returns when the lease has changed, or when it is time for a renewal, whose answer also has the state.
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

    /// Begins the renewals. The promised time counts from the question, which may have waited long. Then one renewal
    /// comes first.
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

/// Why a renewal does not extend the deadline.
enum RenewalError {
    /// The lease is over.
    Over,
    /// There was no answer, or none that decides.
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
                // The holder may need the time of the notice to stop, and releases the lease when it is done. The
                // lease is not renewed any more.
                release_request.await
            }
        };
        word.ends(LeaseLostError::Released);
        let given_back = self.gives_back().await;
        if let Ok(releasing) = release_request {
            // This fails if the receiver of the result was dropped.
            releasing.send(given_back).ok();
        }
    }

    /// Renews for as long as the lease is held, or until the gateway says that it is over.
    async fn renews(&mut self, word: &SharedLeaseState) -> LeaseLostError {
        let mut unanswered = 0;
        // What the gateway has promised last, also when the lease is lost already.
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

    /// Whether the lease is renewed although it is lost.
    fn goes_on_after(&self, lost: LeaseLostError) -> bool {
        self.options.kept_until_released && lost == LeaseLostError::NotRenewed
    }

    /// How long a renewal waits for its answer: afterwards there is still time to try another connection.
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

    /// Gives an unused lease back.
    async fn too_late(&mut self) -> AcquireError {
        drop(self.gives_back().await);
        AcquireError::TooLate(LeaseLostError::NotRenewed)
    }
}

impl LeaseWatch {
    /// Returns when a gateway says that the lease is over. Answers that come too late change nothing.
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

/// The pause before the next renewal: a sixth of the time that is left. What the holder needs to stop takes part of that
/// time, and an answer may be lost. When the time is over, the pause doubles with each request without an answer.
fn renewal_pause(left: Duration, unanswered: u32) -> Duration {
    let shortest = Duration::from_millis(50);
    let longest = Duration::from_secs(5);
    let unanswered = if left.is_zero() { unanswered } else { 0 };
    let backed_off = shortest.saturating_mul(1_u32.checked_shl(unanswered).unwrap_or(u32::MAX));
    (left / 6).max(backed_off).clamp(shortest, longest)
}

/// Releases a lease: asks each gateway in turn until one has a result. A silent gateway does not keep the others from
/// being asked.
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
    let (status, reason) = (status.as_u16(), problem.reason);
    let detail = problem.detail.unwrap_or(problem.title);
    AcquireError::Refused { status, reason, detail, retry_after: answer.retry_after }
}

/// A name that no other question has.
fn random_name() -> HeaderValue {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes once it has booted");
    HeaderValue::from_str(&format!("{:032x}", u128::from_be_bytes(bytes))).expect("hexadecimal digits")
}

impl LeaseHandle {
    /// `None` if the lease is not ours: its id was not told.
    fn new(document: &LeaseResponseBody) -> Option<Self> {
        let mut id = HeaderValue::from_str(document.lease.as_deref()?).ok()?;
        id.set_sensitive(true);
        Some(Self { reference: document.reference.as_str().into(), id })
    }

    fn question(&self, method: Method, below: &str) -> GatewayRequest<'_> {
        let path = format!("/{}{below}", self.reference);
        GatewayRequest {
            method,
            path,
            lease: Some(&self.id),
            name: None,
            in_queue: false,
            body: Bytes::new(),
        }
    }

    fn renewal(&self) -> GatewayRequest<'_> {
        self.question(Method::POST, "/renew")
    }

    /// Waits for a change after `seen`, for so many seconds.
    fn watch(&self, seen: u64, seconds: u64) -> GatewayRequest<'_> {
        self.question(Method::GET, &format!("?watch={seconds}&seen={seen}"))
    }
}

impl LeaseIdentity {
    /// `handle`: from an earlier answer, where this one has no id.
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

    /// From the answer to a renewal or a watch. A refusal decides; a server error may come from a starting gateway or a
    /// balancer, and another gateway may have the lease.
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
        // A page of a balancer, or where it sends us, says nothing about the lease.
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
