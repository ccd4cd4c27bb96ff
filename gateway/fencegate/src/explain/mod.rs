//! Says what would become of a request, without sending it: walks it through the deciding steps of the gateway, with
//! nothing behind them.

mod explained;
mod sample;
mod sent;
mod text;

use std::{
    cell::RefCell,
    io,
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
    sync::Arc,
};

use fencegate_http::{
    body::{Body, Reply},
    buffered::Budget,
    peer::Peer,
    share::Shares,
    upstream::fleet::Fleets,
};
use fencegate_lock::session::paths::Paths;
use fencegate_policies::{
    permits::Permits,
    plan::{
        Caching, Enforce, Fence, Forward, Gateway, Hold, LargeBodies, LeaseUse, Mode, OnceStore, Placing,
        Upstream,
    },
};
use fencegate_process::randomness::{Guid, SystemRandomness};
use hyper::Request;
use tokio_util::task::TaskTracker;

pub use self::{
    explained::{Destination, Explained, HeldKey, Kept, Operation, Refused, TakenLock},
    sample::{BadSample, SampleRequest, default_host},
    sent::Sent,
};
use crate::{
    edition::Edition,
    front::Arrived,
    hop_name::HopName,
    in_flight::InFlight,
    metrics::{Metrics, WorkerMetrics},
    notes::Notes,
    refusal::Refusal,
    stack::{self, Parts},
    step::Serve,
    steps::{fence, key::Keyed, limit::PerClient, route::Routing, upgrade::Invitation},
};

/// What would become of the request. No side effects: nothing is connected to, nothing is written.
///
/// # Errors
/// The machine has no resources for a runtime.
pub fn explain(gateway: &Gateway, sample: &SampleRequest) -> io::Result<Explained> {
    let asked =
        Explained { method: sample.method.clone(), target: sample.target.clone(), ..Explained::default() };
    let request = match sample.request() {
        Ok(request) => request,
        Err(refused) => return Ok(Explained { refused: Some(refused), ..asked }),
    };
    let fields = request.headers().clone();
    let (answer, notes, keyed) = walk(gateway, request)?;
    let serving = &gateway.serving;
    let route = notes.route.get().map(|id| serving.routes.get(id));
    let upstream = keyed.as_ref().map(|keyed| keyed.upstream).or(route.map(|route| route.upstream));
    let reached = Explained {
        route: route.map(|route| route.name.to_string()),
        upstream: upstream.map(|id| destination(serving.upstream(id))),
        observed: notes.observed.get().map(|reason| reason.word()),
        ..asked
    };
    Ok(match (answer, keyed) {
        (Err(refusal), _) => Explained { refused: Some(Refused::of(&refusal)), ..reached },
        (Ok(reply), None) => Explained { answered: Some(reply.status().as_u16()), ..reached },
        (Ok(_), Some(keyed)) => Explained {
            lock: lock(gateway, &keyed),
            once: operation(gateway, &keyed),
            sent: Some(Sent::of(gateway, keyed, &fields)),
            ..reached
        },
    })
}

/// Where the acting steps would begin: keeps the request as it is then.
#[derive(Clone, Default)]
struct Kerb(Rc<RefCell<Option<Keyed>>>);

impl Serve<Keyed> for Kerb {
    async fn serve(&self, request: Keyed) -> Result<Reply, Refusal> {
        self.0.replace(Some(request));
        Ok(Reply::new(Body::empty()))
    }
}

type Walked = (Result<Reply, Refusal>, Rc<Notes>, Option<Keyed>);

fn walk(gateway: &Gateway, request: Request<Body>) -> io::Result<Walked> {
    let plan = Arc::new(gateway.serving.clone());
    let all = Metrics::of_gateway(gateway);
    let metrics = Rc::new(WorkerMetrics::new(all.clone(), &plan));
    let hop = HopName::new(Guid::new(&SystemRandomness));
    let per_client = PerClient { shares: Shares::default(), most: None };
    let (in_flight, running) = (InFlight::at_most(1), TaskTracker::new());
    let memory = plan.listener.limits.buffered.unwrap_or(usize::MAX);
    let budget = Budget::new(memory, all.buffered().clone());
    let (pass, callers, leases) = (None, None, None);
    let plan_asked = plan.clone();
    let parts =
        Parts { in_flight, per_client, hop, budget, callers, leases, pass, plan: plan_asked, running };
    let kerb = Kerb::default();
    let edition = Edition::first(plan.clone(), Fleets::to_look_at(&plan, all.endpoints()));
    let steps = stack::decide(parts, Routing::of(edition, metrics), kerb.clone());
    let notes = Rc::<Notes>::default();
    let arrived = Arrived { http: Box::new(request), notes: notes.clone(), peer: Rc::new(nobody()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let answer = runtime.block_on(steps.serve(arrived));
    let keyed = kerb.0.take();
    Ok((answer, notes, keyed))
}

/// Whoever asks for an explanation has not connected.
fn nobody() -> Peer {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Peer::at(local, local)
}

fn destination(upstream: &Upstream) -> Destination {
    Destination {
        name: upstream.name.to_string(),
        endpoints: upstream.endpoints.iter().map(|endpoint| upstream.written(endpoint)).collect(),
        fencing: upstream.fencing.word(),
        delay: upstream.fencing.delay().map(text::duration),
    }
}

fn lock(gateway: &Gateway, keyed: &Keyed) -> Option<TakenLock> {
    let fenced = keyed.fenced.as_ref()?;
    let fence = fenced.fence(&gateway.serving);
    let paths = Paths::below(&gateway.zookeeper.root);
    let others = gateway.serving.routes.routes().iter().filter(|route| route.id != fenced.route);
    let also = others.filter(|route| route.fence.as_ref().is_some_and(|other| fence.may_share_key(other)));
    let held = fenced.keys.iter().zip(&*fenced.sites);
    Some(TakenLock {
        also: also.map(|route| route.name.to_string()).collect(),
        keys: held
            .map(|(key, site)| HeldKey { key: key.to_string(), path: paths.of_lock(key, site) })
            .collect(),
        layout: matches!(fence.placing, Placing::Foreign { .. }).then(|| fence.placing.layout().word()),
        permits: fence.permits().map(Permits::count),
        mode: fenced.mode.word(),
        wait: text::duration(fence::wait(keyed, fence)),
        locked_status: fence.locked_status,
        queue: fence.queue,
        client_share: fence.client_share,
        hold: kept(fence),
        lease: (fence.lease != LeaseUse::Never).then(|| fence.lease.word()),
        forward: is_sent_on(gateway, keyed, fence).then_some("holder"),
        upload_timeout: match fence.large_bodies {
            LargeBodies::Refuse => None,
            LargeBodies::Stream { within } => Some(text::duration(within)),
        },
        enforce: match fence.enforce {
            Enforce::Refuse => "refuse",
            Enforce::Observe => "observe",
        },
    })
}

/// In the plan, a fence that keeps no key sends nothing on.
fn is_sent_on(gateway: &Gateway, keyed: &Keyed, fence: &Fence) -> bool {
    let exclusive = keyed.fenced.as_ref().is_some_and(|fenced| fenced.mode == Mode::Exclusive);
    // Here, one that would go up while it comes is in full, too.
    let most = gateway.serving.listener.limits.max_body;
    let in_full = keyed.http.body().bytes().is_some_and(|bytes| bytes.len() <= most);
    let route = keyed.notes.route.get().map(|id| gateway.serving.routes.get(id));
    let switches = route.is_some_and(|route| !route.upgrade.is_empty())
        && keyed.http.extensions().get::<Invitation>().is_some();
    gateway.peer.is_some() && fence.forward == Forward::Holder && exclusive && in_full && !switches
}

fn kept(fence: &Fence) -> Kept {
    match fence.hold {
        Hold::Strict => Kept::Strict,
        Hold::Cached(Caching { linger, max_local, max_hold, max_tenure }) => Kept::Cached {
            linger: text::duration(linger),
            max_local,
            max_hold: text::duration(max_hold),
            max_tenure: text::duration(max_tenure),
        },
    }
}

fn operation(gateway: &Gateway, keyed: &Keyed) -> Option<Operation> {
    let fenced = keyed.fenced.as_ref()?;
    let (hashed, named) = (fenced.operation.as_ref()?, keyed.notes.named.get()?);
    let once = fenced.fence(&gateway.serving).once.as_ref()?;
    let (store, path) = match once.store {
        OnceStore::Guard => ("guard", None),
        OnceStore::ZooKeeper => {
            ("zookeeper", Some(Paths::below(&gateway.zookeeper.root).operation(&hashed.id)))
        }
    };
    Some(Operation {
        name: named.name.clone(),
        principal: named.principal.clone(),
        store,
        keep: text::duration(once.keep),
        reference: hashed.id.reference(),
        path,
    })
}
