//! Lets a dispatch through to the upstream, or gives the answer of an earlier one, or refuses.

mod admission;
mod probe;
mod replay;

use std::{rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use fencegate_guard::{
    Guard,
    execution::AdmittedExecution,
    journal::{JournalLookup, ReserveUnresolvedOutcome},
    reserve::{IdempotentRequest, ReservedOperation},
    waiter::ClientWaitLimit,
};
use fencegate_guard_store::{
    dispatch_target::DispatchTarget,
    error::DispatchRefusedError,
    operation::{OperationJournalEntry, ResolutionSource, StoredResponse},
};
use fencegate_http::{body::Reply, network::Network};
use fencegate_http_client::upstream::{
    address::ResolvedEndpoint, endpoint_set::EndpointSet, pool::ConnectionPool,
};
use fencegate_policies::{operation::OperationId, plan::Enforcement};
use fencegate_process::{clock::BootInstant, failpoint, key_redaction};
use fencegate_refusal::{DispatchOutcome, Refusal, RefusalReason};
use hyper::http::response::Parts;
use tracing::{error, info, warn};

pub use self::admission::GuardDispatchPermit;
use self::{
    probe::OutcomeProbeAnswer,
    replay::{replay, replayable_fields, unseen_response_placeholder},
};
use super::answer::{self, ExchangeObserver, ResponseRelayLimits};
use crate::{
    handler::Handler,
    plan_context::WorkerPlanContext,
    request_context::{ObservedOrReplayed, RequestContext, UpstreamExchange},
    steps::{
        authorized::{DispatchRight, DispatchableRequest},
        buffer::BufferedRequest,
        client_liveness::ClientDisconnectWatch,
        detach::DetachedRequest,
        extract_claim::{FencingClaimOutcome, UnadmittedGuardRequest, ValidatedDispatchClaim},
    },
};

/// The settings and tools of the step `admit_or_replay`.
pub struct GuardAdmissionContext<N> {
    pub guard: Arc<Guard>,
    /// The plan. Probes of the upstream are not among its running tasks: a process that stops during a probe knows no
    /// less about the outcome than before.
    pub plan: Rc<WorkerPlanContext>,
    pub pool: Rc<ConnectionPool<N>>,
    /// The endpoints of the service.
    pub endpoints: Arc<EndpointSet>,
}

impl<N> Clone for GuardAdmissionContext<N> {
    fn clone(&self) -> Self {
        let Self { guard, plan, pool, endpoints } = self;
        Self { guard: guard.clone(), plan: plan.clone(), pool: pool.clone(), endpoints: endpoints.clone() }
    }
}

/// The largest answer, in bytes, that is buffered in full before the key is free.
const MAX_BUFFERED: usize = 1 << 20;

pub(crate) async fn admit_or_replay<N: Network, S: Handler<DispatchableRequest<GuardDispatchPermit>>>(
    admission: &GuardAdmissionContext<N>,
    request: DetachedRequest<BufferedRequest<UnadmittedGuardRequest>>,
    next: &S,
) -> Result<Reply, Refusal> {
    let DetachedRequest { request: BufferedRequest(mut request), mut client } = request;
    let mut claimed = match std::mem::replace(&mut request.claim, FencingClaimOutcome::Unfenced) {
        FencingClaimOutcome::Verified(claimed) => *claimed,
        FencingClaimOutcome::Observed(_) => {
            return next.handle(into_dispatchable(request, DispatchRight::Observed, Rc::default())).await;
        }
        FencingClaimOutcome::Unfenced => {
            return next.handle(into_dispatchable(request, DispatchRight::Unfenced, Rc::default())).await;
        }
    };
    let ticket = claimed.ticket.take();
    let running = match admission.admit_or_find_replay(&request, claimed, &mut client).await? {
        ExecuteOrReplay::Run(running) => *running,
        ExecuteOrReplay::Replay(stored) => return replay(stored, &request.context),
    };
    let upstream = request.plan.upstream(request.upstream);
    let limits = ResponseRelayLimits {
        most: MAX_BUFFERED,
        idle: upstream.response_body_idle,
        total: upstream.response_body_total,
        tunnel: Duration::ZERO,
    };
    let permit = GuardDispatchPermit::new(&running, ticket);
    let exchange = Rc::<UpstreamExchange>::default();
    let context = request.context.clone();
    let in_flight = InFlightGuardRequest {
        running,
        admission: admission.clone(),
        exchange: exchange.clone(),
        _context: context.clone(),
    };
    match next.handle(into_dispatchable(request, DispatchRight::Held(permit), exchange)).await {
        Ok(reply) => {
            let WorkerPlanContext { process, running, .. } = &*admission.plan;
            answer::receive_response(reply, in_flight, limits, &process.budget, running).await
        }
        Err(refusal) if refusal.outcome() == DispatchOutcome::Unknown => {
            in_flight.mark_unanswered_in_doubt();
            Err(refusal)
        }
        Err(refusal) => {
            in_flight.cancel_unsent_dispatch().await?;
            Err(refusal)
        }
    }
}

fn into_dispatchable(
    request: UnadmittedGuardRequest,
    right: DispatchRight<GuardDispatchPermit>,
    exchange: Rc<UpstreamExchange>,
) -> DispatchableRequest<GuardDispatchPermit> {
    let UnadmittedGuardRequest { http, context, plan, upstream, source, .. } = request;
    DispatchableRequest::without_route(http, context, plan, upstream, source, right, exchange)
}

/// The decision about a claim that the guard does not refuse.
enum ExecuteOrReplay {
    Run(Box<AdmittedExecution>),
    Replay(StoredResponse),
}

impl<N: Network> GuardAdmissionContext<N> {
    async fn admit_or_find_replay(
        &self,
        request: &UnadmittedGuardRequest,
        claimed: ValidatedDispatchClaim,
        client: &mut ClientDisconnectWatch,
    ) -> Result<ExecuteOrReplay, Refusal> {
        let mut wait_limit = ClientWaitLimit::new(client, self.guard.config.settle);
        let refused = match self.admit(request, &claimed, &mut wait_limit).await {
            Ok(decided) => return Ok(decided),
            Err(refused) => refused,
        };
        // An observing guard only reports a refusal. But if its store fails, it cannot record the dispatch, so it
        // refuses as well.
        if self.guard.config.enforce == Enforcement::Refuse
            || matches!(refused, DispatchRefusedError::Store(_))
        {
            return Err(self.guard.record_refusal(refused, Some(&claimed.claim)).into());
        }
        request.context.admission.get_or_init(|| ObservedOrReplayed::Observed(RefusalReason::from(&refused)));
        let passed = self.guard.admit_unchecked(claimed.claim).await;
        passed
            .map(|running| ExecuteOrReplay::Run(Box::new(running)))
            .map_err(|refused| self.guard.record_refusal(refused, None).into())
    }

    async fn admit(
        &self,
        request: &UnadmittedGuardRequest,
        claimed: &ValidatedDispatchClaim,
        wait_limit: &mut ClientWaitLimit<'_, ClientDisconnectWatch>,
    ) -> Result<ExecuteOrReplay, DispatchRefusedError> {
        if !claimed.in_time {
            return Err(self.guard.late_dispatch_error(&claimed.claim).await);
        }
        let reserved = match admission_request(request, claimed) {
            None => None,
            Some(wanted) => {
                match self
                    .guard
                    .reserve_and_look_up(wanted, &mut self.operation_wait_limit(claimed, wait_limit))
                    .await?
                {
                    JournalLookup::New(reserved) => Some(reserved),
                    JournalLookup::Done(stored) => return Ok(ExecuteOrReplay::Replay(stored)),
                    JournalLookup::DoneUnseen => {
                        return Ok(ExecuteOrReplay::Replay(unseen_response_placeholder()));
                    }
                    JournalLookup::Unknown(reserved, entry) => {
                        match self.probe_upstream(reserved, &entry).await? {
                            Some(reserved) => Some(reserved),
                            None => return Ok(ExecuteOrReplay::Replay(unseen_response_placeholder())),
                        }
                    }
                }
            }
        };
        let running = self.guard.admit(claimed.claim.clone(), reserved, wait_limit).await?;
        Ok(ExecuteOrReplay::Run(Box::new(running)))
    }

    /// A request that a service sent inside a dispatch does not wait for an operation in progress: that may be its
    /// caller's.
    fn operation_wait_limit<'p>(
        &self,
        claimed: &ValidatedDispatchClaim,
        wait_limit: &'p mut ClientWaitLimit<'_, ClientDisconnectWatch>,
    ) -> ClientWaitLimit<'p, ClientDisconnectWatch> {
        let longest = if claimed.claim.is_callback() { Duration::ZERO } else { self.guard.config.settle };
        wait_limit.limited_to(longest)
    }

    /// Probes the upstream about an operation. Returns the reservation if the operation was not done and may run;
    /// `None` if it was done.
    async fn probe_upstream(
        &self,
        reserved: ReservedOperation,
        entry: &OperationJournalEntry,
    ) -> Result<Option<ReservedOperation>, DispatchRefusedError> {
        let unknown = DispatchRefusedError::OutcomeUnknown { reference: reserved.reference() };
        let Some(question) = &self.guard.config.journal.probe else { return Err(unknown) };
        // This is checked before the probe: an execution that ends between probe and check could take effect after
        // the probe's answer.
        let may_still_run = self.guard.may_still_run(entry).await?;
        let place = self.guard.dispatch_target(&entry.keys, entry.token);
        match probe::probe_operation(&self.pool, &self.endpoints, question, entry, place.as_ref()).await {
            OutcomeProbeAnswer::Done => {
                self.guard.resolve_doubt(&entry.keys, entry.token, "probe").await?;
                reserved.reservation.resolve_done(entry, ResolutionSource::Probe).await?;
                Ok(None)
            }
            OutcomeProbeAnswer::NotDone
                if (!may_still_run || failpoint::is_disabled_by_test("rule_late_no"))
                    && self.guard.config.not_done_is_final() =>
            {
                reserved.reservation.resolve_not_done().await?;
                Ok(Some(reserved))
            }
            OutcomeProbeAnswer::NotDone | OutcomeProbeAnswer::Unclear => Err(unknown),
        }
    }
}

impl<N: Network> GuardAdmissionContext<N> {
    /// Probes the outcome of an operation whose answer was lost, without a request that waits for it. If the upstream
    /// reports that the operation is done, its key is free before `max_execution` has passed.
    async fn probe_until_resolved(self, id: OperationId, place: Option<DispatchTarget>) {
        let Some(question) = self.guard.config.journal.probe.clone() else { return };
        for pause in probe::probe_backoff(self.guard.config.max_execution) {
            tokio::time::sleep(pause).await;
            let (reservation, entry) = match self.guard.reserve_unresolved(id).await {
                Ok(ReserveUnresolvedOutcome::Taken(reservation, entry)) => (reservation, entry),
                // A repeat of the request may be sending the same probe, but its client may leave before the answer;
                // and a store that fails may recover. So the next probe follows in both cases.
                Ok(ReserveUnresolvedOutcome::InProgress) | Err(_) => continue,
                Ok(ReserveUnresolvedOutcome::Settled) => return,
            };
            let probing =
                probe::probe_operation(&self.pool, &self.endpoints, &question, &entry, place.as_ref());
            if probing.await != OutcomeProbeAnswer::Done {
                continue;
            }
            let recorded = async {
                self.guard.resolve_doubt(&entry.keys, entry.token, "probe").await?;
                reservation.resolve_done(&entry, ResolutionSource::Probe).await
            };
            if let Err(refused) = recorded.await {
                let reference = id.reference();
                error!(reference, why = %refused, "the answer of a probe was not recorded");
            }
            return;
        }
    }
}

/// The endpoint that may be executing the request. The address is `None` if the endpoint is named by its address.
fn probe_target(address: &ResolvedEndpoint) -> DispatchTarget {
    let socket = address.socket.to_string();
    DispatchTarget {
        endpoint: address.name.to_string(),
        address: Some(socket).filter(|socket| **socket != *address.name),
    }
}

fn admission_request(
    request: &UnadmittedGuardRequest,
    claimed: &ValidatedDispatchClaim,
) -> Option<IdempotentRequest> {
    let operation = claimed.operation.clone()?;
    let name = request.http.headers().get("idempotency-key");
    Some(IdempotentRequest {
        keys: claimed.claim.keys.clone(),
        token: claimed.claim.token,
        method: request.http.method().as_str().to_owned(),
        target: request.http.uri().to_string(),
        name: name.and_then(|name| name.to_str().ok()).map(str::to_owned),
        operation,
    })
}

/// A dispatch in flight, until its answer came in full.
struct InFlightGuardRequest<N> {
    running: AdmittedExecution,
    admission: GuardAdmissionContext<N>,
    exchange: Rc<UpstreamExchange>,
    /// Keeps the count of the request as in flight until its answer came.
    _context: Rc<RequestContext>,
}

impl<N: Network> InFlightGuardRequest<N> {
    /// Marks the keys as in doubt after no answer of the service: the execution may have ended at any time since the
    /// last byte was sent, or may go on.
    fn mark_unanswered_in_doubt(self) {
        let last = self.exchange.attempt().as_ref().map(|sent| sent.gate.last_write_bound());
        let last = last.unwrap_or_else(|| self.admission.guard.now());
        self.mark_in_doubt(last);
    }

    fn mark_in_doubt(self, last: BootInstant) {
        let place = self.exchange.attempt().as_ref().map(|sent| probe_target(&sent.address));
        warn!(keys = self.keys(), token = %self.running.claim().token, "guard.in_doubt");
        let operation = self.running.operation();
        self.running.mark_in_doubt(last, place.clone());
        if let Some(id) = operation {
            tokio::task::spawn_local(self.admission.probe_until_resolved(id, place));
        }
    }

    async fn cancel_unsent_dispatch(self) -> Result<(), Refusal> {
        let guard = self.admission.guard;
        self.running.cancel_unsent().await.map_err(|refused| guard.record_refusal(refused, None).into())
    }
}

impl<N: Network> ExchangeObserver for InFlightGuardRequest<N> {
    /// Never returns. The guard waits for the answer to a request that was written in full, even after its lock was
    /// lost: newer tenures wait for the end of the execution (settle).
    async fn wait_should_give_up(&self) {
        std::future::pending().await
    }

    async fn on_complete(self, head: &Parts, body: Option<&Bytes>) {
        if self.exchange.answer().is_inconclusive {
            // The answer of the service was not seen, so a repeat of the request gets an unknown outcome.
            info!(keys = self.keys(), status = head.status.as_u16(), "answer.unfinished");
            return self.mark_unanswered_in_doubt();
        }
        let fields = self.running.operation().map(|_| replayable_fields(&head.headers)).unwrap_or_default();
        let answer = StoredResponse { status: head.status.as_u16(), fields, body: body.cloned() };
        let keys = self.keys();
        if let Err(refused) = self.running.complete(answer).await {
            // The client gets the answer all the same. A repeat of the request gets an unknown outcome.
            error!(keys, why = %refused, "the result of an operation was not recorded");
        }
    }

    /// Marks the keys as in doubt, because the execution may still run.
    fn on_response_broken(self) {
        let now = self.admission.guard.now();
        self.mark_in_doubt(now);
    }

    fn on_locally_aborted(self) {
        self.on_response_broken();
    }

    fn keys(&self) -> String {
        key_redaction::redact_keys(&self.running.claim().keys)
    }
}
