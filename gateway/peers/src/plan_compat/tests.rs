//! Tests which of two gateways refuses a route, and which plan a session may publish in place of another one.

use std::slice;

use fencegate_policies::file::load;

use super::*;

const OURS: i64 = 7;
const BOOK: &str = r#"  - {name: book, upstream: b, match: {methods: [POST], path: "/book/{id}"}, fence: {key: "book/{path.id}"}}
"#;
const POLICY: &str = include_str!("../../../../policies/tests/two_services.yaml");

fn gateway(changes: &[(&str, &str)]) -> GatewayPlan {
    let mut text = format!("{POLICY}{BOOK}");
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    load(&text).plan.expect("sound")
}

fn publication(changes: &[(&str, &str)]) -> PublishedPlanBytes {
    PlanCompatRegistry::publication(&gateway(changes))
}

const PAY: (&str, &str) = ("\"order/{path.id}\"", "\"pay/{path.id}\"");
const BOOKED: (&str, &str) = ("\"book/{path.id}\"", "\"page/{path.id}\"");
const LEASES: &str = "leases: {principals: [{name: jobs, bearer: {file: /etc/fencegate/jobs.token}, keys: [\"book/*\", \"shelf/*\"]}]}\nupstreams:\n";
const ALLOWED: (&str, &str) = ("upstreams:\n", "allow_mixed: true\nupstreams:\n");

fn peer_session(name: &str, age: PeerPlanPublicationOrder, says: &PublishedPlanBytes) -> PeerPlanPublication {
    PeerPlanPublication { gateway: name.to_owned(), age, says: PeerPlanStatus::Published(says.clone()) }
}

/// A plan comparison, and its verdicts about `pay` and `book`.
struct PlanCompatCase {
    agreement: Arc<PlanCompatRegistry>,
    accord: RouteCompatCache,
}

impl PlanCompatCase {
    fn new(changes: &[(&str, &str)]) -> Self {
        let gateway = gateway(changes);
        let compat = PlanCompatRegistry::new(&gateway, AllMetricFamilies::for_gateway(&gateway));
        let verdicts = compat.route_compat_cache(&gateway.serving);
        Self { agreement: compat, accord: verdicts }
    }

    fn judge(&self, ours: &PublishedPlanBytes, others: &[PeerPlanPublication]) -> [RouteCompatibility; 2] {
        self.agreement.record_conflicting_plans(OURS, ours, others);
        self.compatibilities()
    }

    fn compatibilities(&self) -> [RouteCompatibility; 2] {
        [RouteId(0), RouteId(1)].map(|route| self.accord.route_compatibility(OURS, route))
    }
}

fn incompatible_with(by: &str) -> RouteCompatibility {
    RouteCompatibility::Incompatible(by.to_owned())
}

/// Of two sessions with incompatible plans the younger one refuses requests, and only on the incompatible routes.
#[test]
fn younger_session_refuses_incompatible_routes() {
    let case = PlanCompatCase::new(&[]);
    let ours = publication(&[]);
    let theirs = publication(&[PAY]);
    assert_eq!(
        case.compatibilities(),
        [RouteCompatibility::Unknown, RouteCompatibility::Unknown],
        "nobody has looked yet"
    );
    let [older, younger] = [PeerPlanPublicationOrder::Older, PeerPlanPublicationOrder::Younger]
        .map(|age| peer_session("gw-2", age, &theirs));
    assert_eq!(
        case.judge(&ours, &[younger]),
        [RouteCompatibility::Compatible, RouteCompatibility::Compatible]
    );
    assert_eq!(case.judge(&ours, &[older]), [incompatible_with("gw-2"), RouteCompatibility::Compatible]);
    assert_eq!(
        case.accord.route_compatibility(OURS + 1, RouteId(1)),
        RouteCompatibility::Unknown,
        "of another session"
    );
    case.agreement.end_session(OURS);
    assert_eq!(case.compatibilities(), [RouteCompatibility::Unknown, RouteCompatibility::Unknown]);
}

/// A plan that cannot be compared counts as incompatible in all routes, unless its session is the younger one.
#[test]
fn unreadable_plan_counts_as_incompatible() {
    let case = PlanCompatCase::new(&[]);
    let ours = publication(&[]);
    let of = |age, says| PeerPlanPublication { gateway: "gw-2".to_owned(), age, says };
    let newer = PublishedPlanBytes::from_bytes(br#"{"format": 2}"#.to_vec());
    let all = [incompatible_with("gw-2"), incompatible_with("gw-2")];
    for says in [
        PeerPlanStatus::Published(newer),
        PeerPlanStatus::Unreadable("torn".to_owned()),
        PeerPlanStatus::Incompatible,
    ] {
        let younger = [RouteCompatibility::Compatible, RouteCompatibility::Compatible];
        assert_eq!(case.judge(&ours, &[of(PeerPlanPublicationOrder::Younger, says.clone())]), younger);
        assert_eq!(case.judge(&ours, &[of(PeerPlanPublicationOrder::Older, says.clone())]), all);
        assert_eq!(case.judge(&ours, &[of(PeerPlanPublicationOrder::Legacy, says)]), all);
    }
}

/// A gateway whose file has `allow_mixed` treats every peer as compatible, until the file no longer has it.
#[test]
fn allowed_mismatch_is_compatible_with_all() {
    let case = PlanCompatCase::new(&[ALLOWED]);
    let ours = publication(&[]);
    let older = peer_session("gw-2", PeerPlanPublicationOrder::Older, &publication(&[PAY]));
    assert_eq!(case.judge(&ours, &[older]), [RouteCompatibility::Compatible, RouteCompatibility::Compatible]);
    case.agreement.apply_mixed_plan_policy(&gateway(&[]));
    assert_eq!(case.compatibilities(), [incompatible_with("gw-2"), RouteCompatibility::Compatible]);
}

/// A session that switches plans becomes younger than all others. So it must not switch while another session could
/// begin to serve one of its routes under other locks.
#[test]
fn switch_requires_compatible_remaining_routes() {
    let case = PlanCompatCase::new(&[]);
    let ours = publication(&[]);
    let next = publication(&[BOOKED]);
    let pay = peer_session("gw-2", PeerPlanPublicationOrder::Younger, &publication(&[PAY]));
    case.judge(&ours, slice::from_ref(&pay));
    let reason = case
        .agreement
        .begin_plan_switch(OURS, &ours, &next, slice::from_ref(&pay))
        .expect_err("gw-2 would serve `pay`");
    assert!(reason.contains("gw-2") && reason.contains("pay"), "{reason}");
    assert_eq!(
        case.compatibilities(),
        [RouteCompatibility::Compatible, RouteCompatibility::Compatible],
        "nothing has changed"
    );
    // A route that the next plan does not have is allowed to be incompatible: none of its requests runs any more when that
    // plan takes effect.
    let book = peer_session("gw-2", PeerPlanPublicationOrder::Younger, &publication(&[BOOKED]));
    assert_eq!(case.agreement.begin_plan_switch(OURS, &ours, &next, &[book]), Ok(()));
    assert_eq!(case.compatibilities(), [RouteCompatibility::Compatible, RouteCompatibility::Unknown]);
    // A route that is refused before the switch may stay refused.
    let older = peer_session("gw-3", PeerPlanPublicationOrder::Older, &publication(&[PAY]));
    case.judge(&ours, &[older.clone(), pay.clone()]);
    assert_eq!(case.agreement.begin_plan_switch(OURS, &ours, &next, &[older, pay]), Ok(()));
}

/// A session does not switch to another plan while its clients hold keys that another gateway would then lock in
/// another way.
#[test]
fn leased_key_blocks_incompatible_switch() {
    let leased = ("upstreams:\n", LEASES);
    let permits = |count| format!("\"book/{{path.id}}\", permits: {count}");
    let three = permits(3);
    let four = permits(4);
    let [three, four] = [&three, &four].map(|fence| ("\"book/{path.id}\"", fence.as_str()));
    let case = PlanCompatCase::new(&[leased, three]);
    let [ours, next, without] = [&[leased, three][..], &[leased, four], &[BOOKED]].map(gateway);
    let [ours, next, without] = [&ours, &next, &without].map(|plan| {
        (
            PublishedLockRules::from_plan(&plan.serving, plan.leases.as_ref()),
            PlanCompatRegistry::publication(plan),
        )
    });
    let book = peer_session("gw-2", PeerPlanPublicationOrder::Younger, &publication(&[leased, four]));
    let key = |text| ResourceKey::parse(text).expect("a key");
    let turns = |next: &(PublishedLockRules, PublishedPlanBytes), held: &[&'static str]| {
        case.agreement.set_leases(&next.0, held.iter().map(|text| key(text)).collect());
        case.judge(&ours.1, slice::from_ref(&book));
        case.agreement.begin_plan_switch(OURS, &ours.1, &next.1, slice::from_ref(&book))
    };
    // All gateways change from three permits to four without waiting for each other.
    assert_eq!(turns(&next, &[]), Ok(()));
    for next in [&next, &without] {
        assert_eq!(turns(next, &["shelf/7", "order/7"]), Ok(()), "nobody locks these otherwise");
        let reason = turns(next, &["shelf/7", "book/7"]).expect_err("a client holds it");
        assert!(reason.contains("gw-2") && reason.contains("book/7"), "{reason}");
    }
    let unreadable = PeerPlanPublication { says: PeerPlanStatus::Unreadable("torn".to_owned()), ..book };
    let leased = PlanSwitchLeaseCheck::new(&ours.0, vec![key("shelf/7")]);
    assert!(leased.held_key_conflict_reason(&ours.0, &unreadable, None).is_some(), "nobody knows");
}

/// Another gateway must not lock keys of a granted pattern in another way at any time; of a withdrawn pattern only
/// the keys that are still held matter.
#[test]
fn granted_pattern_blocks_incompatible_switch() {
    let leased = ("upstreams:\n", LEASES);
    let case = PlanCompatCase::new(&[leased]);
    let ours = publication(&[leased]);
    let next = publication(&[leased, PAY]);
    let permits = ("\"book/{path.id}\"", "\"book/{path.id}\", permits: 3");
    let book = peer_session(
        "gw-2",
        PeerPlanPublicationOrder::Younger,
        &publication(&[("path: \"/book/{id}\"", "path: \"/page/{id}\""), permits]),
    );
    case.judge(&ours, slice::from_ref(&book));
    let reason = case
        .agreement
        .begin_plan_switch(OURS, &ours, &next, slice::from_ref(&book))
        .expect_err("it is granted");
    assert!(reason.contains("leases of book/*"), "{reason}");
    let bare = gateway(&[PAY]);
    case.agreement.set_leases(&PublishedLockRules::from_plan(&bare.serving, None), Vec::new());
    assert_eq!(case.agreement.begin_plan_switch(OURS, &ours, &next, &[book]), Ok(()));
}
