//! Sends a request on to the gateway that keeps its key, and says what is known of its fate.
//!
//! A pause anywhere here makes a request late and nothing else: tokens come from the other gateway's tenure alone, and
//! this one holds nothing meanwhile. What was written, even a byte of it, is never sent again.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_http::{
    body::{Body, Reply, Trailers, fields},
    network::Network,
    upstream::speak::{NotAnswered, TakesTrailers},
};
use fencegate_lock::reach::Way;
use fencegate_policies::{key::ResourceKey, plan::Plan};
use fencegate_process::clock::SharedClock;
use hyper::{
    HeaderMap, Request, Response, Version,
    body::Incoming,
    header::{CONNECTION, CONTENT_LENGTH, HeaderValue, TE, TRANSFER_ENCODING},
};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::{
    calling_dispatch::ShownTicket,
    headers::{FENCING_FORWARDED, FENCING_LEASE, FENCING_TICKET, FENCING_TOKEN},
    leases::ShownLease,
    metrics::{Forwarding, WorkerMetrics},
    refusal::{Outcome, Reason, Refusal},
    siblings::{
        Ours, Reported, field,
        trunk::{Dialling, Idle, Lend},
    },
    steps::{key::Keyed, presence::WaitingClient, upgrade::Invitation},
};

/// One worker's, under one plan.
pub struct Courier<N> {
    pub network: N,
    pub clock: SharedClock,
    pub ours: Ours,
    pub plan: Arc<Plan>,
    pub metrics: Rc<WorkerMetrics>,
    /// Kept from one plan to the next.
    pub idle: Rc<Idle>,
}

/// What is to be sent on, and where to.
#[derive(Clone, Copy)]
pub struct Errand<'r> {
    /// The way to the gateway that keeps the key.
    pub way: &'r Way,
    pub key: &'r ResourceKey,
    pub request: &'r Keyed,
    /// How long the request may wait there for its key.
    pub left: Duration,
}

/// What came of a request that was sent on.
pub enum Carried {
    /// The other gateway's answer, whatever it is: it goes to the client as it stands.
    Answered(Reply),
    /// Nothing was dispatched there, and nothing can have been: it may queue here. Why, for the log.
    Back(&'static str),
    /// The same, and because the other gateway could not be reached. Whoever asks again now fares no better.
    Unreached(&'static str),
    /// Its client has gone, or nobody knows what came of it.
    Refused(Refusal),
}

/// Beside what the other gateway may take by its own limits.
const MARGIN: Duration = Duration::from_secs(5);

impl<N: Network> Courier<N> {
    /// Sends a request on, and waits for its answer as long as its client does.
    ///
    /// # Cancellation
    /// Not to be dropped before it returns: whether anything was written would not be known.
    pub async fn carry(&self, errand: Errand<'_>, client: &mut WaitingClient) -> Carried {
        let Errand { way, request, .. } = errand;
        if request.http.extensions().get::<Invitation>().is_some() {
            return Carried::Back("it asks for another protocol");
        }
        request.notes.forwarded_to.replace(Some(way.gateway.clone()));
        let carried = self.send(errand, client).await;
        let counted = match &carried {
            Carried::Answered(_) => Forwarding::Answered,
            Carried::Back(why) | Carried::Unreached(why) => {
                debug!(gateway = %way.gateway, why, "back from another gateway");
                request.notes.forwarded_to.take();
                request.notes.sent.take();
                Forwarding::Back
            }
            Carried::Refused(refusal) if refusal.outcome() == Outcome::Unknown => {
                if client.is_gone() {
                    Forwarding::Gone
                } else {
                    Forwarding::Unknown
                }
            }
            Carried::Refused(_) => return carried,
        };
        if let Some(route) = request.notes.route.get() {
            self.metrics.route(route).forwarded(counted);
        }
        carried
    }

    async fn send(
        &self,
        Errand { way, key, request, left }: Errand<'_>,
        client: &mut WaitingClient,
    ) -> Carried {
        let until = Instant::now() + left;
        let due = until + self.patience(request);
        let dialling = |left| Dialling {
            network: &self.network,
            clock: &self.clock,
            secured: self.ours.secured.as_deref(),
            // Gateways of one installation are mostly of one mind.
            kept: self.plan.listener.timeouts.idle / 2,
            left,
        };
        let mut fresh = false;
        loop {
            let dialling = dialling(until.saturating_duration_since(Instant::now()));
            let lend = tokio::select! {
                lend = Lend::of(&dialling, &self.idle, way, fresh) => lend,
                () = client.gone() => return Carried::Refused(gone(Reason::Locked)),
            };
            let Ok(mut lend) =
                lend.inspect_err(|error| debug!(gateway = %way.gateway, %error, "not reached"))
            else {
                self.idle.forget(way);
                return Carried::Unreached("the other gateway cannot be reached");
            };
            let Some(again) = request.again() else { return Carried::Back("its body is not here in full") };
            let Some(http) = self.addressed(*again.http, request, (way, key, until)) else {
                return Carried::Back("its key does not fit into a field");
            };
            request.notes.sends(Instant::now(), &way.gateway);
            let answer = lend.send(http);
            let answered = tokio::select! {
                answered = answer => answered,
                ended = ended(client, due) => return ended_early(ended, &mut lend),
            };
            match answered {
                Ok(response) => return self.answered(response, lend, request, until),
                Err(failed) => match self.broken(failed, lend) {
                    // It was closed while it lay idle.
                    Broken::Unsent { reused: true } => fresh = true,
                    Broken::Unsent { reused: false } => {
                        self.idle.forget(way);
                        return Carried::Unreached("not a byte could be sent");
                    }
                    Broken::Unknown(refusal) => return Carried::Refused(refusal),
                },
            }
        }
    }

    /// What the other gateway may take beside the wait: its client's body, two attempts at the upstream, and an answer that
    /// it takes in full before it says a word of it. One that trickles for longer is an unknown outcome: a gateway that is
    /// frozen says as little, and nobody should wait for that as long as a tenure may last.
    fn patience(&self, request: &Keyed) -> Duration {
        let upstream = self.plan.upstream(request.upstream);
        let attempt = upstream.connect_timeout + upstream.response_timeout;
        attempt * 2 + upstream.response_body_idle + self.plan.listener.timeouts.request_body + MARGIN
    }

    /// The client's own request, with a word of ours beside it.
    fn addressed(
        &self,
        mut http: Request<Body>,
        request: &Keyed,
        (way, key, until): (&Way, &ResourceKey, Instant),
    ) -> Option<Request<Body>> {
        let left = until.saturating_duration_since(Instant::now());
        let said = field::told(&way.pass, key.as_str(), left, &self.ours.name);
        let mut said = HeaderValue::from_str(&said).ok()?;
        // Not to be remembered by a library, nor shown.
        said.set_sensitive(true);
        *http.version_mut() = Version::HTTP_11;
        if let Some(ShownTicket::Good(from)) = request.notes.shown.get() {
            // Whoever keeps the key decides what that is worth.
            http.headers_mut().insert(FENCING_TICKET, from.ticket.clone());
            http.headers_mut().insert(FENCING_TOKEN, from.written.clone());
        }
        if let Some(ShownLease::Good(_, written)) = request.notes.lease.get() {
            http.headers_mut().insert(FENCING_LEASE, written.clone());
        }
        let takes_trailers = http.extensions().get::<TakesTrailers>().is_some();
        let headers = http.headers_mut();
        headers.insert(FENCING_FORWARDED, said);
        if takes_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            headers.insert(CONNECTION, HeaderValue::from_static("TE"));
        }
        Some(http)
    }

    /// Its head is here, in full.
    fn answered(
        &self,
        response: Response<Incoming>,
        mut lend: Lend,
        request: &Keyed,
        until: Instant,
    ) -> Carried {
        let Some(told) = Reported::read(response.headers()) else {
            lend.give_up();
            warn!("an answer to what was sent on that no gateway gives");
            return Carried::Refused(Refusal::new(Reason::OutcomeUnknown, "it answers as no gateway does"));
        };
        if told.reason == Some(Reason::PeerForbidden) && told.outcome == Outcome::NotDispatched {
            // It does not lead any more to who has proven to know the pass.
            lend.give_up();
            self.idle.forget(lend.way());
            return Carried::Back(Reason::PeerForbidden.word());
        }
        if closes(response.headers()) {
            // It stops, most likely: what meets the end of an idle connection on its way has an unknown outcome.
            self.idle.forget(lend.way());
        }
        let reply = self.reply(response, lend, request);
        if told.is_its_own_trouble() && !(told.is_of_its_upstream() && Instant::now() >= until) {
            let why = told.reason.map_or("not-dispatched", Reason::word);
            // Short, and read to its end only for the connection's sake.
            tokio::task::spawn_local(async move { drop(reply.into_body().spent().await) });
            return Carried::Back(why);
        }
        let began = request.notes.sent.borrow().as_ref().map(|(at, _)| *at);
        request.notes.upstream.set(began.map(|began| began.elapsed()));
        request.notes.told.set(Some(told));
        request.notes.token.set(told.token);
        Carried::Answered(reply)
    }

    /// As it is, but for the fields of the hop. What it says of the fence is believed: only gateways are asked.
    fn reply(&self, response: Response<Incoming>, lend: Lend, request: &Keyed) -> Reply {
        let (mut head, incoming) = response.into_parts();
        if head.headers.contains_key(TRANSFER_ENCODING) {
            head.headers.remove(CONTENT_LENGTH);
        }
        let ours: HeaderMap = fields::clean(&mut head.headers, &self.plan.fields);
        head.headers.extend(ours);
        head.version = Version::HTTP_11;
        let idle = self.plan.upstream(request.upstream).response_body_idle;
        let trailers = Trailers::Clean(request.plan.clone());
        Response::from_parts(head, lend.body(incoming, trailers, idle))
    }

    fn broken(&self, failed: NotAnswered, mut lend: Lend) -> Broken {
        let unwritten = lend.give_up();
        // What the library gives back it has not begun with. What was written then is not of the request: TLS says good-bye
        // on a connection that was closed while it lay idle.
        if unwritten || failed.back.is_some() {
            return Broken::Unsent { reused: lend.is_reused() };
        }
        Broken::Unknown(Refusal::new(Reason::OutcomeUnknown, format!("another gateway: {}", failed.why)))
    }
}

/// The other side ends the connection with this answer.
fn closes(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|option| option.trim().eq_ignore_ascii_case("close"))
}

/// An exchange that got no answer.
enum Broken {
    Unsent { reused: bool },
    Unknown(Refusal),
}

/// Why an answer is not waited for any longer.
enum Ended {
    ClientGone,
    Late,
}

async fn ended(client: &mut WaitingClient, due: Instant) -> Ended {
    tokio::select! {
        () = client.gone() => Ended::ClientGone,
        () = sleep_until(due) => Ended::Late,
    }
}

/// The other gateway sees a client that hung up: it gives up while it waits, and ends in order what it has dispatched.
fn ended_early(ended: Ended, lend: &mut Lend) -> Carried {
    match (ended, lend.give_up()) {
        (Ended::ClientGone, true) => Carried::Refused(gone(Reason::Locked)),
        (Ended::ClientGone, false) => Carried::Refused(gone(Reason::OutcomeUnknown)),
        (Ended::Late, true) => Carried::Unreached("it took nothing of the request in time"),
        (Ended::Late, false) => {
            Carried::Refused(Refusal::new(Reason::OutcomeLate, "another gateway did not answer in time"))
        }
    }
}

/// Nobody reads this.
fn gone(reason: Reason) -> Refusal {
    Refusal::new(reason, "the client went away while another gateway had its request")
}

#[cfg(test)]
mod tests;
