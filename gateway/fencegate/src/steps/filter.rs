//! At a filter: refuses a request that comes after the moment until which it may be begun, and lets no byte of it leave
//! later. Everything else passes as it came.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_guard::refused::Refused;
use fencegate_http::body::{Body, Reply};
use fencegate_policies::{
    not_after::NotAfter,
    plan::{Enforce, Missing, UpstreamId},
};
use fencegate_process::{
    clock::{Boot, Clock, Permission, SharedClock},
    failpoint,
};
use hyper::{HeaderMap, Request};
use tracing::warn;

use super::route::{origin_form, overridden};
use crate::{
    front::Arrived,
    headers::FENCING_REFUSAL,
    notes::{Notes, Planned},
    refusal::{Outcome, Reason, Refusal},
    shown_clock::ShownClock,
    step::{Serve, Stops},
    steps::{
        arbitrate::Admission,
        buffer::Loaded,
        claim::{Bypass, present},
        hygiene::Clean,
        incoming::Incoming,
        permitted::Permitted,
        screen::Screened,
    },
};

/// What the steps of a filter work with.
#[derive(Clone)]
pub struct Filtering {
    pub clock: SharedClock,
    /// By how much the sender's wall clock may differ from this machine's.
    pub clock_error: Duration,
    pub enforce: Enforce,
    pub bypass: Arc<Bypass>,
    pub plan: Planned,
}

/// A request, and the permission to begin it where it has one.
pub struct Filtered {
    pub http: Box<Request<Body>>,
    pub notes: Rc<Notes>,
    pub plan: Planned,
    pub upstream: UpstreamId,
    /// `None` for a request that may pass at any time.
    permission: Option<Arc<BegunBy>>,
}

impl Incoming for Filtered {
    fn http(&mut self) -> &mut Request<Body> {
        &mut self.http
    }

    /// Its body is taken in full first, so that all of it is sent at once and in time.
    fn is_fenced(&self) -> bool {
        self.permission.is_some()
    }
}

/// The permission to send a request until it must not be begun any more.
#[derive(Debug)]
struct BegunBy(Boot);

impl Permission for BegunBy {
    fn holds(&self, now: Boot) -> bool {
        now < self.0
    }

    fn deadline(&self) -> Boot {
        self.0
    }
}

/// Every answer to the request shows the clock of this process, a refusal as well.
pub fn show_clock(filtering: &Filtering, request: Arrived) -> Result<Arrived, Stops> {
    let Filtering { clock, clock_error, .. } = filtering;
    let shown = ShownClock { clock: clock.clone(), error: *clock_error };
    request.notes.shown_clock.get_or_init(|| shown);
    Ok(request)
}

/// Looks at the moment as the request arrives.
pub async fn filter<S: Serve<Filtered>>(
    filtering: &Filtering,
    request: Clean,
    next: &S,
) -> Result<Reply, Refusal> {
    let Clean { request: Screened { mut http, notes, path, .. }, presented } = request;
    if let Some(ambiguity) = path.ambiguity() {
        return Err(Refusal::new(Reason::AmbiguousPath, ambiguity.to_string()));
    }
    let permission = match filtering.permission(&http, &presented) {
        Ok(permission) => permission,
        Err(refused) => {
            filtering.observed(refused, &notes)?;
            None
        }
    };
    // A request that must not be begun late is never sent twice.
    notes.fenced.set(permission.is_some());
    origin_form(&mut http, path.as_str());
    for (name, value) in &presented {
        http.headers_mut().append(name, value.clone());
    }
    let (plan, upstream) = (filtering.plan.clone(), UpstreamId(0));
    next.serve(Filtered { http, notes, plan, upstream, permission }).await
}

/// Looks once more, now that the body is here, and sends the request under its permission.
pub async fn begin<S: Serve<Permitted<Admission>>>(
    filtering: &Filtering,
    Loaded(request): Loaded<Filtered>,
    next: &S,
) -> Result<Reply, Refusal> {
    let Filtered { http, notes, plan, upstream, permission } = request;
    if permission.as_ref().is_some_and(|permission| !permission.holds(filtering.clock.now())) {
        return Err(Refused::Expired.into());
    }
    notes.begun_by.replace(permission.map(|permission| permission as Arc<dyn Permission>));
    match next.serve(Permitted { http, notes: notes.clone(), plan, upstream, hold: None }).await {
        Ok(mut reply) => {
            // What a service that compares tokens says of a stale one is for the sender.
            if let Some(word) = notes.refused_by_service.take() {
                reply.headers_mut().insert(FENCING_REFUSAL, word);
            }
            Ok(reply)
        }
        Err(refusal) if refusal.outcome() == Outcome::NotDispatched && has_expired(&notes) => {
            Err(Refused::Expired.into())
        }
        Err(refusal) => Err(refusal),
    }
}

/// The permission ended before the first byte was written.
fn has_expired(notes: &Notes) -> bool {
    notes.gate.borrow().as_ref().is_some_and(|gate| gate.lost_its_proof() && gate.written() == 0)
}

impl Filtering {
    /// The permission of a request; `None` for one that needs none.
    fn permission(
        &self,
        http: &Request<Body>,
        presented: &HeaderMap,
    ) -> Result<Option<Arc<BegunBy>>, Refused> {
        match begun_by(presented, &*self.clock, self.clock_error)? {
            Some(end) => Ok(Some(Arc::new(BegunBy(end)))),
            None if self.is_unfenced(http) => Ok(None),
            None => Err(Refused::NotAfterMissing),
        }
    }

    /// The method needs no moment. A field that makes another method or path of the request rules that out.
    fn is_unfenced(&self, http: &Request<Body>) -> bool {
        let method = http.method().as_str();
        self.bypass.unfenced.iter().any(|unfenced| unfenced == method) && overridden(http.headers()).is_none()
    }

    /// Lets a request pass that would be refused, where the filter only observes.
    fn observed(&self, refused: Refused, notes: &Notes) -> Result<(), Refusal> {
        let missing = refused == Refused::NotAfterMissing;
        if self.enforce == Enforce::Refuse && !(missing && self.bypass.missing == Missing::Observe) {
            return Err(refused.into());
        }
        let reason = Reason::from(&refused);
        warn!(reason = reason.word(), "filter.observed");
        notes.observed.set(Some(reason));
        Ok(())
    }
}

/// The moment from which on a request must not be begun, on this clock; `None` where its fields name none.
///
/// # Errors
/// [`Refused::Expired`] if that moment has come.
pub fn begun_by(
    presented: &HeaderMap,
    clock: &dyn Clock,
    clock_error: Duration,
) -> Result<Option<Boot>, Refused> {
    let Some(not_after) = present::not_after(presented)? else { return Ok(None) };
    let end = clock.deadline_of(&not_after, clock_error);
    if end <= clock.now() && !failpoint::is_off("rule_filter") {
        tell(clock, &not_after);
        return Err(Refused::Expired);
    }
    Ok(Some(end))
}

fn tell(clock: &dyn Clock, not_after: &NotAfter) {
    let late_ms = clock.unix_ms().saturating_sub(not_after.unix_ms());
    warn!(late_ms, "filter.expired: it came too late, or the clocks differ");
}
