//! Reads a policy file into a plan, or says all that is wrong with it at once.

mod block;
mod fence;
mod key;
mod listener;
mod route;
mod scalar;
mod upstream;
mod yaml;
mod zookeeper;

use std::cell::RefCell;

use self::{block::Block, route::Written, upstream::Upstreams};
use crate::{
    diagnose::{Code, Diagnostic, Place, Severity},
    fnv::fnv1a,
    plan::{Level, Plan, ReservedFields, Route, RouteId, Unmatched, ZooKeeper},
    route::RouteTable,
};

/// What came out of a file.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// `Some` if and only if no diagnostic is an error.
    pub plan: Option<Plan>,
    /// By place.
    pub diagnostics: Vec<Diagnostic>,
}

/// What has been found wrong so far. Reading goes on after a mistake, so that one run shows them all.
#[derive(Debug, Default)]
struct Faults(RefCell<Vec<Diagnostic>>);

impl Faults {
    fn push(&self, diagnostic: Diagnostic) {
        self.0.borrow_mut().push(diagnostic);
    }
}

/// The plan that a file describes. Never panics, whatever the text.
pub fn load(text: &str) -> Loaded {
    let faults = Faults::default();
    let plan = yaml::parse(text, &faults).and_then(|root| {
        let start = Place { line: 1, column: 1, width: 1 };
        Block::read(Some(&root), "the policy", start, &faults, |block| policy(block, &faults))?
    });
    let mut diagnostics = faults.0.into_inner();
    diagnostics.sort_by_key(|diagnostic| diagnostic.place);
    let sound = diagnostics.iter().all(|diagnostic| diagnostic.severity != Severity::Error);
    Loaded { plan: plan.filter(|_| sound), diagnostics }
}

/// `None` where something is missing that no default can stand in for; a fault then says so.
fn policy<'n>(block: &mut Block<'n>, faults: &Faults) -> Option<Plan> {
    version(block);
    let name = block.value("name", scalar::name);
    let listener = listener::listener(block);
    let admin = listener::admin(block);
    let zookeeper = zookeeper::zookeeper(block);
    let mut upstreams = Upstreams::read(block);
    let defaults = block.inner("defaults", fence::Terms::read).unwrap_or_default();
    let routes = route::routes(block, &upstreams, &defaults);
    let unmatched = unmatched(block, &upstreams);

    upstreams.mark_fenced(&routes);
    if let Some(zookeeper) = &zookeeper {
        lock_can_be_lost(&upstreams, zookeeper, faults);
    }
    let (zookeeper, upstreams) = (zookeeper?, upstreams.all()?);
    let route = |(index, written): (usize, Written)| written.into_route(RouteId(index));
    let routes = routes.into_iter().enumerate().map(route).collect::<Option<Vec<_>>>()?;
    let renamed = upstreams.iter().flat_map(|upstream| [&upstream.fields.token, &upstream.fields.number]);
    Some(Plan {
        name,
        listener: listener?,
        admin,
        unmatched,
        fields: ReservedFields::with(renamed.cloned()),
        fingerprint: fingerprint(&zookeeper, &routes),
        zookeeper,
        upstreams,
        routes: RouteTable::build(routes),
    })
}

fn version(block: &mut Block) {
    block.require("version", "version: 1");
    block.value("version", |version| match version {
        "1" => Ok(()),
        _ => Err(Diagnostic::new(Code::Version, format!("there is no version `{version}` of policy files"))
            .remedy("this gateway reads `version: 1`")),
    });
}

fn unmatched(block: &mut Block, upstreams: &Upstreams) -> Unmatched {
    if block.is_mapping("unmatched") {
        let pass = block.inner("unmatched", |block| upstreams.named(block, "pass")).flatten();
        return pass.map_or(Unmatched::Reject, Unmatched::Pass);
    }
    let word = block.value("unmatched", |text| match text {
        "reject" => Ok(Unmatched::Reject),
        _ => Err(Diagnostic::new(Code::UnknownValue, format!("`{text}` is not a value of `unmatched`"))
            .remedy("write `reject`, or `{pass: <an upstream>}`")),
    });
    word.unwrap_or(Unmatched::Reject)
}

/// Where nobody compares tokens, the lock is all there is: it should not end before the answer is given up.
fn lock_can_be_lost(upstreams: &Upstreams, zookeeper: &ZooKeeper, faults: &Faults) {
    for (upstream, place) in upstreams.read_well() {
        let outlives = upstream.response_timeout >= zookeeper.session_timeout;
        if outlives && upstream.has_fenced_routes && upstream.fencing == Level::None {
            let message = format!(
                "the lock can be lost while a request to `{}` is still allowed to run: it may take {}, the session {}",
                upstream.name,
                scalar::written(upstream.response_timeout),
                scalar::written(zookeeper.session_timeout),
            );
            let remedy = "make `response_timeout` shorter than `zookeeper.session_timeout`";
            faults.push(Diagnostic::new(Code::LockCanBeLost, message).at(place).remedy(remedy));
        }
    }
}

/// Over all that decides which lock a request takes, and nothing else: timeouts may differ between gateways.
fn fingerprint(zookeeper: &ZooKeeper, routes: &[Route]) -> u64 {
    let mut text = format!("1\n{}\n", zookeeper.root);
    for route in routes {
        let fence =
            route.fence.as_ref().map_or("none".to_owned(), |fence| format!("{:?} {}", fence.mode, fence.key));
        text.push_str(&format!("{} {} {fence}\n", route.methods.join(","), route.path));
    }
    fnv1a(text.as_bytes())
}
