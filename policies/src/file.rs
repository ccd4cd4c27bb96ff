//! Reads a policy file into a plan, or says all that is wrong with it at once.

mod agree;
mod block;
mod fence;
mod hold;
mod key;
mod listener;
mod reach;
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
    plan::{Fence, Gateway, Level, Plan, ReservedFields, Route, RouteId, Unmatched, ZooKeeper},
    route::RouteTable,
};

/// What came out of a file.
#[derive(Debug, Clone)]
pub struct Loaded<P> {
    /// `Some` if and only if no diagnostic is an error.
    pub plan: Option<P>,
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
pub fn load(text: &str) -> Loaded<Gateway> {
    let faults = Faults::default();
    let plan = yaml::parse(text, &faults).and_then(|root| {
        let start = Place { line: 1, column: 1, width: 1 };
        Block::read(Some(&root), "the policy", start, &faults, policy)?
    });
    let mut diagnostics = faults.0.into_inner();
    diagnostics.sort_by_key(|diagnostic| diagnostic.place);
    let sound = diagnostics.iter().all(|diagnostic| diagnostic.severity != Severity::Error);
    Loaded { plan: plan.filter(|_| sound), diagnostics }
}

/// `None` where something is missing that no default can stand in for; a fault then says so.
fn policy(block: &mut Block) -> Option<Gateway> {
    version(block);
    let name = block.value("name", scalar::name);
    let listener = listener::listener(block);
    let admin = listener::admin(block);
    let zookeeper = zookeeper::zookeeper(block);
    let mut upstreams = Upstreams::read(block);
    let defaults = block.inner("defaults", fence::Terms::defaults).unwrap_or_default();
    let routes = route::routes(block, &upstreams, &defaults);
    let unmatched = unmatched(block, &upstreams);

    upstreams.mark_fenced(&routes);
    if let Some(zookeeper) = &zookeeper {
        lock_can_be_lost(&upstreams, zookeeper, block.faults());
    }
    let (zookeeper, upstreams) = (zookeeper?, upstreams.all()?);
    let route = |(index, written): (usize, Written)| written.into_route(RouteId(index));
    let routes = routes.into_iter().enumerate().map(route).collect::<Option<Vec<_>>>()?;
    let renamed = upstreams.iter().flat_map(|upstream| [&upstream.fields.token, &upstream.fields.number]);
    Some(Gateway {
        fingerprint: fingerprint(&zookeeper, &routes),
        zookeeper,
        tickets: None,
        serving: Plan {
            name,
            listener: listener?,
            admin,
            unmatched,
            fields: ReservedFields::with(renamed.cloned()),
            upstreams,
            routes: RouteTable::build(routes),
        },
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
        let fence = route.fence.as_ref().map_or("none".to_owned(), locks);
        text.push_str(&format!("{} {} {fence}\n", route.methods.join(","), route.path));
    }
    fnv1a(text.as_bytes())
}

/// Written the same for all sets of the same keys.
fn locks(fence: &Fence) -> String {
    let mut keys: Vec<String> = fence.keys.iter().map(ToString::to_string).collect();
    keys.sort_unstable();
    keys.dedup();
    // No key has a tab.
    format!("{} {}", fence.mode.word(), keys.join("\t"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        path::CanonicalPath,
        plan::{Caching, Hold, Limits, ModeRule, Timeouts, UpstreamId},
    };

    const MINIMAL: &str = include_str!("../examples/minimal.yaml");
    const PAYMENTS: &str = include_str!("../examples/payments.yaml");
    const INVENTORY: &str = include_str!("../examples/inventory.yaml");

    fn gateway(text: &str) -> Gateway {
        let Loaded { plan, diagnostics } = load(text);
        plan.unwrap_or_else(|| panic!("{diagnostics:?}"))
    }

    fn plan(text: &str) -> Plan {
        gateway(text).serving
    }

    #[test]
    fn what_is_not_written_has_the_documented_default() {
        let plan = plan(MINIMAL);
        let limits = Limits {
            connections: 4000,
            in_flight: 10_000,
            max_header: 65_536,
            max_fields: 100,
            max_body: 1_048_576,
        };
        let timeouts = Timeouts {
            request_headers: Duration::from_secs(10),
            request_body: Duration::from_secs(10),
            drain: Duration::from_secs(30),
        };
        assert_eq!((plan.listener.limits, plan.listener.timeouts), (limits, timeouts));
        assert_eq!(plan.admin.address.to_string(), "127.0.0.1:9901");
        assert_eq!((plan.name, plan.unmatched), (None, Unmatched::Reject));
        let zookeeper = gateway(MINIMAL).zookeeper;
        assert_eq!(zookeeper.root, "/fencegate");
        assert_eq!(zookeeper.session_timeout, Duration::from_secs(12));
        assert_eq!((zookeeper.tick, zookeeper.safety_margin), (Duration::from_secs(2), None));
        assert_eq!(zookeeper.sessions, 4);
        let upstream = &plan.upstreams[0];
        assert_eq!((&*upstream.fields.token, &*upstream.fields.number), ("fencing-token", "fencing-number"));
        assert_eq!(upstream.connect_timeout, Duration::from_secs(3));
        assert_eq!(upstream.response_body_idle, Duration::from_secs(30));
        assert_eq!(upstream.idle, Duration::from_secs(30));
        let fence = plan.routes.routes()[0].fence.as_ref().expect("fenced");
        assert_eq!((fence.keys.len(), fence.set, fence.mode), (1, false, ModeRule::Exclusive));
        assert_eq!((fence.hold, fence.locked_status), (Hold::Cached(Caching::default()), 423));
        assert_eq!((fence.wait, fence.queue, fence.max_response), (Duration::from_secs(5), 100, 1_048_576));
    }

    #[test]
    fn what_is_written_is_in_the_plan() {
        let plan = plan(PAYMENTS);
        assert_eq!(plan.name.as_deref(), Some("gw-1"));
        assert_eq!(plan.listener.limits.max_body, 256 << 10);
        assert_eq!(gateway(PAYMENTS).zookeeper.servers, ["zk1:2181", "zk2:2181", "zk3:2181"]);
        assert_eq!(plan.upstream(UpstreamId(0)).endpoints.len(), 2);
        assert!(plan.upstreams[0].has_fenced_routes);
        let found = |method, path| {
            let id = plan.routes.find(method, &CanonicalPath::parse(path))?.route.id;
            let route = plan.routes.get(id);
            Some((&*route.name, route.fence.as_ref()))
        };
        let (name, fence) = found("POST", "/v1/orders/42/capture").expect("routed");
        let fence = fence.expect("fenced");
        assert_eq!((name, fence.wait, fence.queue), ("capture", Duration::from_secs(2), 50));
        let (_, payout) = found("POST", "/v1/payouts").expect("routed");
        let payout = payout.expect("fenced");
        assert_eq!((payout.wait, payout.locked_status), (Duration::from_secs(5), 409));
        assert!(matches!(found("GET", "/v1/orders/42"), Some(("read", None))));
        assert!(found("POST", "/v1/orders/42").is_none());
    }

    /// The fence of the route of that name.
    fn fence(plan: &Plan, route: &str) -> Fence {
        let routes = plan.routes.routes();
        let route = routes.iter().find(|known| &*known.name == route).expect("a route of that name");
        route.fence.clone().expect("fenced")
    }

    #[test]
    fn a_set_has_all_its_keys_and_is_never_kept() {
        let plan = plan(INVENTORY);
        let transfer = fence(&plan, "transfer");
        assert_eq!((transfer.keys.len(), transfer.set, transfer.hold), (2, true, Hold::Strict));
        assert!(transfer.reads_body() && !fence(&plan, "reserve").reads_body());
        let modes = ["reserve", "count", "record"].map(|route| fence(&plan, route).mode);
        assert_eq!(modes, [ModeRule::Exclusive, ModeRule::Shared, ModeRule::ByMethod]);
        assert_eq!(fence(&plan, "reserve").hold, Hold::Cached(Caching::default()));
        assert_eq!(fence(&plan, "recount").hold, Hold::Strict);
    }

    #[test]
    fn a_fence_inherits_what_it_does_not_say_about_its_hold() {
        let hold = |defaults: &str, own: &str| {
            let fence_ = format!("order/{{path.order_id}}\", hold: {{{own}}}}}");
            let text = MINIMAL.replace("order/{path.order_id}\"}", &fence_);
            let plan = plan(&format!("{text}defaults: {{hold: {{{defaults}}}}}\n"));
            plan.routes.routes()[0].fence.as_ref().expect("fenced").hold
        };
        let caching = Caching { linger: Duration::from_secs(1), max_local: 8, ..Caching::default() };
        assert_eq!(hold("linger: 1s, max_local: 9", "max_local: 8"), Hold::Cached(caching));
        assert_eq!(hold("linger: 1s", "mode: strict"), Hold::Strict);
        assert_eq!(hold("mode: strict", ""), Hold::Strict);
        assert_eq!(hold("mode: strict", "mode: cached, linger: 1s, max_local: 8"), Hold::Cached(caching));
        let none = Caching { linger: Duration::ZERO, ..Caching::default() };
        assert_eq!(hold("", "linger: 0s"), Hold::Cached(none));
    }

    #[test]
    fn the_fingerprint_is_that_of_the_locks() {
        let fingerprint = |from: &str, to: &str| gateway(&PAYMENTS.replace(from, to)).fingerprint;
        let before = gateway(PAYMENTS).fingerprint;
        for (from, to) in [("name: gw-1", "name: gw-2"), ("wait: 2s", "wait: 3s")] {
            assert_eq!(fingerprint(from, to), before, "{to}");
        }
        for (from, to) in [
            ("\"order/{", "\"orders/{"),
            ("root: /fencegate/payments", "root: /fencegate/other"),
            ("/v1/payouts", "/v2/payouts"),
            ("[GET, HEAD]", "[GET]"),
            ("| trim | lower}", "| trim}"),
        ] {
            assert_ne!(fingerprint(from, to), before, "{to}");
        }
    }

    #[test]
    fn the_fingerprint_of_a_set_is_that_of_its_keys() {
        let before = gateway(INVENTORY).fingerprint;
        let (one, other) = ("sku/{body:/from}/{body:/sku | lower}\"", "sku/{body:/to}/{body:/sku | lower}\"");
        let swapped = INVENTORY.replace(one, "swap").replace(other, one).replace("swap", other);
        assert!(swapped != INVENTORY && gateway(&swapped).fingerprint == before);
        for (from, to) in [(other, one), ("mode: shared", "mode: exclusive"), ("/from", "/source")] {
            assert_ne!(gateway(&INVENTORY.replace(from, to)).fingerprint, before, "{to}");
        }
        let kept = INVENTORY.replace("max_local: 64", "max_local: 8").replace("sessions: 4", "sessions: 2");
        assert_eq!(gateway(&kept).fingerprint, before);
    }

    #[test]
    fn renamed_token_fields_are_reserved_in_every_spelling() {
        let renamed = MINIMAL.replace("fencing: none", "fencing: none\n    fields: {token: X-My-Token}");
        let plan = plan(&renamed);
        assert_eq!(plan.upstreams[0].fields.token, "x-my-token");
        assert!(plan.fields.contains("X_my-TOKEN") && plan.fields.contains("fencing-key"));
    }

    #[test]
    fn unmatched_requests_pass_only_where_that_is_written() {
        let text = format!("{MINIMAL}unmatched: {{pass: orders}}\n");
        assert_eq!(plan(&text).unmatched, Unmatched::Pass(UpstreamId(0)));
    }

    #[test]
    fn a_field_without_a_value_is_a_field_that_is_not_there() {
        let text = format!("{MINIMAL}admin:\ndefaults: ~\nunmatched: null\n");
        assert_eq!(plan(&text).unmatched, Unmatched::Reject);
        let emptied = load(&MINIMAL.replace("fence: {key: \"order/{path.order_id}\"}", "fence:"));
        assert_eq!(emptied.diagnostics[0].code, Code::MissingField);
    }

    #[test]
    fn a_text_that_looks_like_a_number_stays_what_was_written() {
        let plan = plan(&MINIMAL.replace("\"order/{path.order_id}\"", "007"));
        let fence = plan.routes.routes()[0].fence.as_ref().expect("fenced");
        assert_eq!(fence.keys[0].to_string(), "007");
    }

    #[test]
    fn a_file_of_many_megabytes_is_not_read() {
        let text = format!("{MINIMAL}{}", "# more\n".repeat(2 << 20));
        assert_eq!(load(&text).diagnostics[0].code, Code::TooMuch);
    }

    fn consistent(text: &str) -> bool {
        let Loaded { plan, diagnostics } = load(text);
        let rendered = diagnostics.iter().all(|diagnostic| !diagnostic.render("a.yaml", text).is_empty());
        let errors = diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
        rendered && plan.is_some() != errors && diagnostics.is_sorted_by_key(|diagnostic| diagnostic.place)
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text: String) {
            prop_assert!(consistent(&text));
        }

        #[test]
        fn anything_like_yaml_is_read_without_a_panic(text in "([a-z]{1,3}|[\\[\\]{}:,&*!|>'\"%@#? \n-]|: |\n  |é){0,60}") {
            prop_assert!(consistent(&text));
        }

        /// Cuts a piece out of a good file and puts another in.
        #[test]
        fn a_damaged_file_has_a_plan_or_an_error(
            good in prop_oneof![Just(PAYMENTS), Just(INVENTORY)],
            at: prop::sample::Index,
            length in 0..40_usize,
            piece in "|[a-z{}\\[\\]:,\"' \n./|-]{0,12}|~|5|\u{fffd}\u{1f512}",
        ) {
            let at = at.index(good.len());
            let kept: String = good.chars().skip(at + length).collect();
            let text = good.chars().take(at).chain(piece.chars()).collect::<String>() + &kept;
            prop_assert!(consistent(&text), "{}", text);
        }
    }
}
