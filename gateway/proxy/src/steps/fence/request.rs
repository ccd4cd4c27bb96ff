//! A request that needs a lock: its relation to locks that are held already, how long it waits, and its entry among the
//! requests of its keys.

use std::{borrow::Cow, rc::Rc, sync::Arc, time::Duration};

use fencegate_guard_client::{
    callback::{CallbackTicket, ParentDispatch},
    guard_identity::UpstreamGuardRegistry,
};
use fencegate_http::client_quota::{ClientId, ClientQuotaPermit, ClientQuotas, QuotaClientIdentity};
use fencegate_leases::PresentedLease;
use fencegate_lock::manager::lock_request::LockWaitPlace;
use fencegate_metrics::request_tracker::{ActiveRequest, RequestTrackGuard, RequestTracker};
use fencegate_policies::{
    plan::{
        Enforcement, FenceRule, FencingLevel, LockMode, LockReusePolicy, NestedRequestPolicy,
        PeerForwardPolicy, RequestLeasePolicy,
    },
    prefer,
    token::FencingToken,
};
use fencegate_protocol::lease_id::LeaseId;
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::header::{HeaderName, HeaderValue};
use tokio::time::Instant;

use crate::steps::{
    client_liveness::ClientDisconnectWatch,
    key::{KeyedRequest, RequestLockSpec},
    upgrade::ClientUpgradeProtocols,
};

/// A request that needs a lock.
pub(super) struct LockingRequest {
    pub(super) keyed: KeyedRequest,
    pub(super) lock: RequestLockSpec,
    pub(super) client: ClientDisconnectWatch,
    /// The entry of the request in the list of requests of its keys.
    pub(super) entry: Rc<RequestTrackGuard>,
    pub(super) listed: ActiveRequest,
}

/// How a request relates to the locks that its caller already holds.
pub(super) enum CallerLockRelation {
    /// The request shows no caller and no lease.
    NoCaller,
    /// All keys of the request are held by the dispatch in which it was called.
    SameKeys(Rc<ParentDispatch>),
    /// The request was sent inside a dispatch, and that dispatch holds none of its keys.
    OtherKeys(Rc<ParentDispatch>),
    /// The request belongs to a client that holds a lease.
    UnderLease(Rc<LeaseId>),
}

impl LockingRequest {
    pub(super) fn new(
        keyed: KeyedRequest,
        lock: RequestLockSpec,
        client: ClientDisconnectWatch,
        requests: &Arc<RequestTracker>,
    ) -> Self {
        let listed = ActiveRequest {
            request: Some(keyed.trace.request_id.clone()),
            route: keyed.plan.routes.get(lock.route).name.clone(),
            mode: lock.mode,
            came: std::time::Instant::now(),
            works: None,
        };
        let entry = Rc::new(requests.track(&lock.keys, &listed));
        Self { keyed, lock, client, entry, listed }
    }

    /// Counts the request in its client's quota of the route; `None` where the route has no quota.
    pub(super) fn acquire_client_share(
        &self,
        rule: &FenceRule,
        shares: &ClientQuotas,
    ) -> Result<Option<ClientQuotaPermit>, Refusal> {
        let Some(most) = rule.client_share else { return Ok(None) };
        let client = match &self.lock.share_client {
            Some(name) => QuotaClientIdentity::Name(name.clone()),
            None => QuotaClientIdentity::Address(ClientId::from_ip(self.keyed.source.client)),
        };
        let share = shares.acquire_route(client, self.listed.route.clone(), most);
        share
            .map(Some)
            .ok_or_else(|| Refusal::new(RefusalReason::ClientLimit, "the client has its share of the route"))
    }

    /// The moment until which the request waits for its lock. For a request from another gateway it is at most the
    /// moment that gateway allows.
    pub(super) fn wait_deadline(&self, relation: &CallerLockRelation, rule: &FenceRule) -> Instant {
        let wait = match relation {
            CallerLockRelation::NoCaller | CallerLockRelation::UnderLease(_) => max_wait(&self.keyed, rule),
            // A request that is sent inside a dispatch does not wait: its caller waits for it, and others wait for the
            // caller.
            CallerLockRelation::SameKeys(_) | CallerLockRelation::OtherKeys(_) => Duration::ZERO,
        };
        let ours = Instant::now() + wait;
        self.keyed.source.forwarded.as_ref().map_or(ours, |forwarded| ours.min(forwarded.until))
    }

    /// Copies the request for a second attempt, in case a guard reports that a newer tenure came first. `None` for a
    /// streamed body, which cannot be sent again, and for a request that runs under the lock of its caller or client:
    /// it is not tried again under another lock.
    pub(super) fn retry_copy(
        &self,
        relation: &CallerLockRelation,
        rule: &FenceRule,
        guards: &UpstreamGuardRegistry,
    ) -> Option<KeyedRequest> {
        let upstream = self.keyed.plan.upstream(self.keyed.upstream);
        let is_guarded = upstream.fencing == FencingLevel::Guard && guards.is_direct(upstream);
        let may_retry = matches!(relation, CallerLockRelation::NoCaller)
            && (is_guarded || rule.enforce == Enforcement::Observe);
        may_retry.then(|| self.keyed.try_clone())?
    }
}

impl CallerLockRelation {
    /// Finds the relation by the ticket and the lease that the request shows. `grants_leases` tells whether this
    /// installation grants leases.
    ///
    /// # Errors
    /// Returns an error if a request that is called in this way can never run, if the route requires a lease and the
    /// request has none, or if the route accepts no lease and the request has one.
    pub(super) fn find(request: &KeyedRequest, grants_leases: bool) -> Result<Self, Refusal> {
        let Some(lock) = &request.fenced else { return Ok(Self::NoCaller) };
        let rule = lock.fence(&request.plan);
        let shown = request.source.callback.as_ref();
        let Some(shown) = shown.filter(|_| rule.nested == NestedRequestPolicy::Allow) else {
            return Self::classify_lease(rule, request.source.lease.as_ref(), grants_leases);
        };
        let from = match shown {
            CallbackTicket::Valid(from) => from,
            CallbackTicket::Expired(error) => return Err(Refusal::new(RefusalReason::StaleToken, *error)),
        };
        request.context.update_lock(|facts| facts.called_from = Some(from.token));
        let held = lock.keys.iter().filter(|key| from.keys.contains(key)).count();
        match held {
            0 => Ok(Self::OtherKeys(from.clone())),
            all if all == lock.keys.len() => Ok(Self::SameKeys(from.clone())),
            _ => Err(deadlock_refusal("some of its keys are those of its caller, and others are not")),
        }
    }

    fn classify_lease(
        rule: &FenceRule,
        presented: Option<&PresentedLease>,
        grants_leases: bool,
    ) -> Result<Self, Refusal> {
        match (rule.lease, presented) {
            (RequestLeasePolicy::Never | RequestLeasePolicy::Optional, None) => Ok(Self::NoCaller),
            (RequestLeasePolicy::Required, None) => {
                Err(Refusal::new(RefusalReason::LeaseRequired, "no `Fencing-Lease`"))
            }
            // Where no leases are granted, the field means nothing, as every field that a client must not write.
            (RequestLeasePolicy::Never, Some(_)) if !grants_leases => Ok(Self::NoCaller),
            (RequestLeasePolicy::Never, Some(_)) => {
                // The request would wait for the lock that its own client holds.
                Err(Refusal::new(RefusalReason::LeaseForbidden, "its route takes no lease"))
            }
            (
                RequestLeasePolicy::Optional | RequestLeasePolicy::Required,
                Some(PresentedLease::Malformed),
            ) => Err(Refusal::new(RefusalReason::LeaseForbidden, "`Fencing-Lease` is no id of a lease")),
            (
                RequestLeasePolicy::Optional | RequestLeasePolicy::Required,
                Some(PresentedLease::Valid(id, _)),
            ) => Ok(Self::UnderLease(id.clone())),
        }
    }

    /// The token of the dispatch in which a service sent the request.
    pub(super) fn called_from(&self) -> Option<FencingToken> {
        match self {
            Self::SameKeys(from) | Self::OtherKeys(from) => Some(from.token),
            Self::NoCaller | Self::UnderLease(_) => None,
        }
    }

    /// Changes the refusal of a request that was sent inside a dispatch. Such a request never waits for a lock, so the
    /// refusal for a busy lock names the deadlock and not a wait.
    pub(super) fn as_deadlock_refusal(&self, refusal: Refusal) -> Refusal {
        match (self, refusal.reason) {
            (Self::SameKeys(_) | Self::OtherKeys(_), RefusalReason::Locked | RefusalReason::QueueFull) => {
                deadlock_refusal(refusal.detail)
            }
            _ => refusal,
        }
    }
}

pub(super) fn deadlock_refusal(reason: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(RefusalReason::DeadlockAvoided, reason)
}

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The longest wait for the lock. The client can lower the wait of its route by `Prefer: wait=N` (RFC 7240), not raise
/// it.
pub fn max_wait(request: &KeyedRequest, rule: &FenceRule) -> Duration {
    let preferred =
        prefer::parse_wait(request.http.headers().get_all(PREFER).iter().map(HeaderValue::as_bytes));
    preferred.map_or(rule.wait, |preferred| preferred.min(rule.wait))
}

/// Decides at which gateway a request may wait for its key. `relation` is `None` if the relation itself is refused.
///
/// # Errors
/// Returns an error if another gateway has sent the request, but by the plan of this one it does not need exactly the
/// key that was sent with it.
pub(super) fn wait_place(
    request: &KeyedRequest,
    relation: Option<&CallerLockRelation>,
    forwards: bool,
) -> Result<LockWaitPlace, Refusal> {
    if matches!(relation, None | Some(CallerLockRelation::SameKeys(_) | CallerLockRelation::UnderLease(_))) {
        return Ok(LockWaitPlace::Here);
    }
    let alone = |lock: &&RequestLockSpec| caches_key(lock, lock.fence(&request.plan));
    let kept = request.fenced.as_ref().filter(alone);
    match (&request.source.forwarded, kept) {
        (Some(forwarded), Some(lock)) if lock.keys[0].as_str() == forwarded.key => {
            Ok(LockWaitPlace::AtHolder)
        }
        (Some(_), _) => {
            Err(Refusal::new(RefusalReason::NotHolder, "by our plan it does not wait for that key alone"))
        }
        (None, Some(lock)) if forwards => Ok(allowed_place(request, lock)),
        (None, _) => Ok(LockWaitPlace::Here),
    }
}

/// True if the route locks one key exclusively, keeps it for later requests, and refuses requests without the lock.
fn caches_key(lock: &RequestLockSpec, rule: &FenceRule) -> bool {
    let cached = matches!(rule.hold, LockReusePolicy::Cached(_)) && lock.keys.len() == 1;
    cached && lock.mode == LockMode::Exclusive && rule.enforce == Enforcement::Refuse
}

/// A request may be forwarded only if its body was buffered in full, because it may come back and be served here. One
/// that switches protocols stays here: the bytes after the switch are no request.
fn allowed_place(request: &KeyedRequest, lock: &RequestLockSpec) -> LockWaitPlace {
    let sends = lock.fence(&request.plan).forward == PeerForwardPolicy::Holder;
    let whole = request.http.body().try_clone().is_some();
    let switches = request.http.extensions().get::<ClientUpgradeProtocols>().is_some();
    if sends && whole && !switches { LockWaitPlace::Anywhere } else { LockWaitPlace::Here }
}
