//! The background task of one lease: requests it, renews it, and releases it.

use std::{cmp, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use tokio::{sync::oneshot, time::timeout};

use crate::{
    error::{AcquireError, ReleaseError},
    gateway_connection::{GatewayConnection, GatewayEndpoint, GatewayRequest, GatewayResponse, Unanswered},
    lease::{Lease, LeaseIdentity, Releasing},
    lease_clock::{BootInstant, SharedLeaseClock},
    lease_json::{LeaseRequestBody, LeaseResponseBody},
    lease_state::{LeaseLostError, LeaseUpdate, SharedLeaseState},
};

/// A request for a lease, with its gateway and its clock.
pub(crate) struct PendingLeaseRequest {
    pub(crate) gateway: Arc<GatewayEndpoint>,
    pub(crate) clock: SharedLeaseClock,
    pub(crate) asked: LeaseRequestBody,
    pub(crate) notice: Option<Duration>,
}

/// The renewing task.
struct LeaseRenewalTask {
    line: GatewayConnection,
    clock: SharedLeaseClock,
    told: LeaseIdentity,
    notice: Option<Duration>,
    /// A third of the time that the gateway last promised.
    third: Duration,
    next: BootInstant,
}

/// The times in an answer.
struct RenewalTiming {
    proven: LeaseUpdate,
    third: Duration,
}

/// The time limit for an answer, added to the wait for another holder.
const ANSWER: Duration = Duration::from_secs(5);
/// The shortest time between two questions, however little the gateway promises.
const SELDOM: Duration = Duration::from_millis(20);

/// Runs from the question to the end of the lease.
pub(crate) async fn lease(
    applied: PendingLeaseRequest,
    mut told: oneshot::Sender<Result<Lease, AcquireError>>,
) {
    let mut line = GatewayConnection::to(applied.gateway.clone());
    let granted = tokio::select! {
        // The answer is checked first, so that a granted lease is not forgotten if the caller goes at that moment.
        biased;
        granted = applied.granted(&mut line) => granted,
        // The connection is closed here, and the gateway removes the request from the queue.
        () = told.closed() => return,
    };
    let begun = match granted {
        Ok((document, asked)) => applied.begin(line, document, asked).await,
        Err(not_leased) => Err(not_leased),
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
    ) -> Result<(LeaseResponseBody, BootInstant), AcquireError> {
        let asked = self.clock.now();
        let body = serde_json::to_vec(&self.asked).expect("plain fields serialise").into();
        let question = GatewayRequest { method: Method::POST, path: String::new(), lease: None, body };
        let longest = Duration::from_millis(self.asked.wait_ms).saturating_add(ANSWER);
        let answer = timeout(longest, line.ask(&question)).await;
        let answer = answer.unwrap_or_else(|late| Err(late.into())).map_err(AcquireError::Unanswered)?;
        match answer.status {
            StatusCode::CREATED => {
                answer.read().map(|document| (document, asked)).map_err(AcquireError::Unanswered)
            }
            StatusCode::LOCKED => Err(AcquireError::Locked { keys: self.asked.keys.clone() }),
            status => {
                let problem = answer.problem();
                let status = status.as_u16();
                let reason = problem.reason;
                let detail = problem.detail.unwrap_or(problem.title);
                Err(AcquireError::Refused { status, reason, detail, retry_after: answer.retry_after })
            }
        }
    }

    /// Begins the renewals. The promised time counts from the question, which may have waited long. Then one renewal
    /// comes first.
    async fn begin(
        self,
        line: GatewayConnection,
        document: LeaseResponseBody,
        asked: BootInstant,
    ) -> Result<(LeaseRenewalTask, Arc<SharedLeaseState>), AcquireError> {
        let Self { clock, notice, .. } = self;
        let mut promise = RenewalTiming::of(&document, asked, notice);
        let unreadable =
            || AcquireError::Unanswered("the gateway tells no id or no token of the lease".into());
        let told = LeaseIdentity::of(document).ok_or_else(unreadable)?;
        let mut renewing =
            LeaseRenewalTask { line, clock: clock.clone(), told, notice, third: promise.third, next: asked };
        if clock.now().until(promise.proven.until) <= promise.third {
            match renewing.asked_once(clock.now().after(ANSWER)).await {
                Ok(next) => promise = next,
                Err(RenewalError::Over) => return Err(AcquireError::TooLate(LeaseLostError::Ended)),
                Err(RenewalError::Untold) => return Err(renewing.too_late().await),
            }
        }
        if clock.now() >= promise.proven.until {
            return Err(renewing.too_late().await);
        }
        (renewing.third, renewing.next) = (promise.third, clock.now().after(promise.third));
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
        let release_request = tokio::select! {
            biased;
            release_request = &mut release_request => release_request,
            lost = self.renews(word) => {
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

    /// Renews for as long as the lease is held.
    async fn renews(&mut self, word: &SharedLeaseState) -> LeaseLostError {
        loop {
            self.clock.reaches(cmp::min(self.next, word.until())).await;
            if let Err(lost) = word.remaining() {
                return lost;
            }
            let asked = self.clock.now();
            // If no answer comes within a third of the time, there is still time to try another connection.
            let limit = cmp::min(asked.after(self.third), word.until());
            let pause = match self.asked_once(limit).await {
                Ok(RenewalTiming { proven, third }) => {
                    if let Err(lost) = word.is_proven(proven) {
                        return lost;
                    }
                    self.third = third;
                    third
                }
                Err(RenewalError::Over) => return LeaseLostError::Ended,
                Err(RenewalError::Untold) => self.third / 4,
            };
            self.next = self.clock.now().after(pause.max(SELDOM));
        }
    }

    /// Renews once, and waits for the answer until `limit`.
    async fn asked_once(&mut self, limit: BootInstant) -> Result<RenewalTiming, RenewalError> {
        let asked = self.clock.now();
        let path = format!("/{}/renew", self.told.reference);
        let id = self.told.id.clone();
        let question = GatewayRequest { method: Method::POST, path, lease: Some(&id), body: Bytes::new() };
        let answer = tokio::select! {
            biased;
            answer = self.line.ask(&question) => answer.map_err(|_| RenewalError::Untold)?,
            () = self.clock.reaches(limit) => return Err(RenewalError::Untold),
        };
        match answer.status {
            StatusCode::OK => {
                let document: LeaseResponseBody = answer.read().map_err(|_| RenewalError::Untold)?;
                if document.is_held() {
                    Ok(RenewalTiming::of(&document, asked, self.notice))
                } else {
                    Err(RenewalError::Over)
                }
            }
            StatusCode::PRECONDITION_FAILED => Err(RenewalError::Over),
            // The answer may come from a starting gateway or a balancer; another gateway may have the lease.
            _ => Err(RenewalError::Untold),
        }
    }

    async fn gives_back(&mut self) -> Result<(), ReleaseError> {
        let path = format!("/{}", self.told.reference);
        let id = self.told.id.clone();
        let question = GatewayRequest { method: Method::DELETE, path, lease: Some(&id), body: Bytes::new() };
        let answer = timeout(ANSWER, self.line.ask(&question)).await;
        let answer: Result<GatewayResponse, Unanswered> = answer.unwrap_or_else(|late| Err(late.into()));
        let answer = answer.map_err(ReleaseError::Unanswered)?;
        if answer.status.is_success() {
            return Ok(());
        }
        Err(ReleaseError::Refused { status: answer.status.as_u16(), reason: answer.problem().reason })
    }

    /// Gives an unused lease back.
    async fn too_late(&mut self) -> AcquireError {
        drop(self.gives_back().await);
        AcquireError::TooLate(LeaseLostError::NotRenewed)
    }
}

impl LeaseIdentity {
    fn of(document: LeaseResponseBody) -> Option<Self> {
        let mut id = HeaderValue::from_str(&document.lease?).ok()?;
        id.set_sensitive(true);
        let reference = document.reference.into();
        let token = document.token?.into();
        Some(Self { reference, id, token, number: document.number?, permit: document.permit })
    }
}

impl RenewalTiming {
    /// `asked`: a moment before the request was sent.
    fn of(document: &LeaseResponseBody, asked: BootInstant, notice: Option<Duration>) -> Self {
        let held_for = Duration::from_millis(document.held_for_ms.unwrap_or_default());
        let notice = notice.unwrap_or(held_for / 10).min(held_for / 2);
        let [revocation, ticket] =
            [&document.revocation, &document.ticket].map(|text| text.as_deref().map(Arc::from));
        let until = asked.after(held_for - notice);
        Self { proven: LeaseUpdate { until, revocation, ticket }, third: held_for / 3 }
    }
}

#[cfg(test)]
mod tests;
