//! Reads the claim of a request: token, key, mode, ticket, operation. Answers what gateways ask of the guard itself.

pub mod present;

use std::{rc::Rc, sync::Arc, time::SystemTime};

use bytes::Bytes;
use fencegate_guard::{
    Guard,
    announce::ANNOUNCEMENT,
    refused::{Malformed, Refused},
    register::Claim,
    ticket::Verifier,
};
use fencegate_http::{
    body::{Body, Reply},
    peer::Peer,
};
use fencegate_policies::{
    operation::Operation,
    plan::{Enforce, Missing, UpstreamId},
};
use fencegate_process::shown::Names;
use hyper::{
    HeaderMap, Method, Request, Response,
    header::{CONTENT_TYPE, HeaderValue},
};
use tracing::warn;

use super::route::{origin_form, overridden};
use crate::{
    headers::FENCING_HOPS,
    notes::{Notes, Planned},
    refusal::{Reason, Refusal},
    step::Serve,
    steps::{hygiene::Clean, incoming::Incoming, screen::Screened},
    unbelieved::{Stranger, Unbelieved},
};

/// At a guard: the claim of the request is known, and may still be refused.
pub struct Presented {
    pub http: Box<Request<Body>>,
    pub notes: Rc<Notes>,
    pub plan: Planned,
    pub upstream: UpstreamId,
    /// `None` for a request that may pass without a token.
    pub claimed: Option<Claimed>,
}

/// A claim that has the right form and, where needed, a valid ticket.
pub struct Claimed {
    pub claim: Claim,
    pub operation: Option<Operation>,
    /// The ticket for the service, where the service may call back.
    pub ticket: Option<HeaderValue>,
    /// Whether it arrived before the moment after which it must not be begun.
    pub in_time: bool,
}

impl Incoming for Presented {
    fn http(&mut self) -> &mut Request<Body> {
        &mut self.http
    }

    fn is_fenced(&self) -> bool {
        self.claimed.is_some()
    }
}

/// What the step works with.
#[derive(Clone)]
pub struct Claiming {
    pub guard: Arc<Guard>,
    pub plan: Planned,
    /// What tickets are verified with, where they are required.
    pub tickets: Option<Arc<Verifier>>,
    pub bypass: Arc<Bypass>,
    /// For operators.
    pub unbelieved: Arc<Unbelieved>,
}

/// The requests that may pass without a token.
#[derive(Debug, Clone)]
pub struct Bypass {
    /// Methods that need no token.
    pub unfenced: Vec<String>,
    /// What happens to requests with another method.
    pub missing: Missing,
}

/// Answers the question with which every connection of a gateway begins. It is no client's request, and is not
/// counted as one.
pub async fn announce<S: Serve<Clean>>(
    claiming: &Claiming,
    request: Clean,
    next: &S,
) -> Result<Reply, Refusal> {
    let Screened { http, path, .. } = &request.request;
    if path.as_str() == ANNOUNCEMENT && http.method() == Method::GET {
        return Ok(json(&claiming.guard.announcement().await?));
    }
    next.serve(request).await
}

pub async fn claim<S: Serve<Presented>>(
    claiming: &Claiming,
    request: Clean,
    next: &S,
) -> Result<Reply, Refusal> {
    let Clean { request: Screened { mut http, notes, peer, path, .. }, presented } = request;
    if let Some(ambiguity) = path.ambiguity() {
        return Err(Refusal::new(Reason::AmbiguousPath, ambiguity.to_string()));
    }
    if http.method().as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Err(Refusal::new(Reason::Method, "a method in lower case"));
    }
    notes.hop_seen.set(is_relayed(notes.hops.get(), &presented));
    let claimed = match claiming.claimed(&presented) {
        Ok(claimed) => Some(claimed),
        Err(refused) => claiming.unclaimed(&http, refused, &notes, &peer)?,
    };
    if let Some(Claimed { claim, .. }) = &claimed {
        notes.fenced.set(true);
        notes.token.set(Some(claim.token));
        notes.keys.get_or_init(|| Rc::from(&*claim.keys));
    }
    if let Some(Claimed { claim, .. }) =
        claimed.as_ref().filter(|claimed| claimed.claim.token.dispatch() == 0)
    {
        let refused = Refused::TokenMalformed(Malformed::NoDispatch);
        return Err(claiming.guard.refuse(refused, Some(claim)).into());
    }
    origin_form(&mut http, path.as_str());
    let upstream = UpstreamId(0);
    next.serve(Presented { http, notes, plan: claiming.plan.clone(), upstream, claimed }).await
}

impl Claiming {
    fn claimed(&self, presented: &HeaderMap) -> Result<Claimed, Refused> {
        let mut claim = present::claim(presented)?;
        let operation = present::operation(presented, self.guard.rules.journal.keep.as_secs())?;
        let parent = present::parent(presented)?;
        if self.tickets.is_none() && parent.is_some_and(|parent| parent.same_tenure(claim.token)) {
            // Without tickets anybody could claim that a request runs inside another one.
            return Err(Refused::Called);
        }
        claim.parent = parent;
        let not_after = present::not_after(presented)?;
        let mut signed = None;
        if let Some(verifier) = &self.tickets {
            let ticket = present::ticket(presented)?.as_bytes();
            let verified = self.guard.verify(verifier, ticket, &claim, not_after.as_ref())?;
            (claim.era, signed) = (Some(verified.claims.era), verified.not_after);
        }
        let in_time = self.guard.is_in_time(not_after.as_ref(), signed);
        if !in_time {
            let moment = not_after.map(|moment| moment.unix_ms()).or(signed).unwrap_or_default();
            let late_ms = self.guard.clock().unix_ms().saturating_sub(moment);
            warn!(token = %claim.token, late_ms, "guard.expired: it came too late, or the clocks differ");
        }
        Ok(Claimed { claim, operation, ticket: present::passed_on(presented), in_time })
    }

    /// A request without a valid claim: only few may pass.
    fn unclaimed(
        &self,
        http: &Request<Body>,
        refused: Refused,
        notes: &Notes,
        peer: &Peer,
    ) -> Result<Option<Claimed>, Refusal> {
        let missing = refused == Refused::TokenMissing;
        if missing && self.is_unfenced(http) {
            return Ok(None);
        }
        if missing {
            self.guard.metrics.decided("bypass");
        }
        self.tell(http, &refused, notes, peer);
        if self.guard.rules.enforce == Enforce::Observe
            || (missing && self.bypass.missing == Missing::Observe)
        {
            notes.observed.set(Some(Reason::from(&refused)));
            notes.fenced.set(true);
            return Ok(None);
        }
        Err(self.guard.refuse(refused, None).into())
    }

    /// The method needs no token. A field that makes another method or path of the request rules that out.
    fn is_unfenced(&self, http: &Request<Body>) -> bool {
        let method = http.method().as_str();
        self.bypass.unfenced.iter().any(|unfenced| unfenced == method) && overridden(http.headers()).is_none()
    }

    /// Reports a caller without a valid claim, so that operators can find it. The path often contains a key, so it is
    /// logged only where keys are.
    fn tell(&self, http: &Request<Body>, refused: &Refused, notes: &Notes, peer: &Peer) {
        let shown = Names(self.plan.log.keys).shows_targets();
        let path = shown.then(|| http.uri().path().escape_debug());
        let path = path.map(tracing::field::display);
        let (method, peer, reason) = (http.method(), peer.address, refused.word().as_str());
        let client = notes.client.get().filter(|client| *client != peer.ip());
        let word = if *refused == Refused::TokenMissing { "bypass" } else { reason };
        self.unbelieved.came(word, Stranger { at: SystemTime::now(), peer, client, method: method.clone() });
        let client = client.map(tracing::field::display);
        let request_id = notes.request_id.get().and_then(|name| name.to_str().ok());
        if *refused == Refused::TokenMissing {
            // Somebody reaches the guard without a gateway.
            warn!(%peer, client, request_id, %method, path, "guard.bypass");
        } else {
            warn!(%peer, client, request_id, %method, path, reason, "guard.not_believed");
        }
    }
}

/// The gateway says how many hops the request came through before. One more entry means that something stands between
/// gateway and guard.
fn is_relayed(hops: u32, presented: &HeaderMap) -> bool {
    let before = presented.get(FENCING_HOPS).and_then(|value| value.to_str().ok()?.parse().ok());
    hops > before.unwrap_or(0)
}

fn json(value: &impl serde::Serialize) -> Reply {
    let body = serde_json::to_vec(value).expect("plain fields serialise");
    let mut reply = Response::new(Body::whole(Bytes::from(body)));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}
