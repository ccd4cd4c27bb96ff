//! Which of two gateways refuses a route, and which plan a session may publish in place of another.

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

fn published(changes: &[(&str, &str)]) -> PlanPublication {
    PlanCompat::publication(&gateway(changes))
}

const PAY: (&str, &str) = ("\"order/{path.id}\"", "\"pay/{path.id}\"");
const BOOKED: (&str, &str) = ("\"book/{path.id}\"", "\"page/{path.id}\"");
const LEASES: &str = "leases: {principals: [{name: jobs, bearer: {file: /etc/fencegate/jobs.token}, keys: [\"book/*\", \"shelf/*\"]}]}\nupstreams:\n";
const ALLOWED: (&str, &str) = ("upstreams:\n", "allow_mixed: true\nupstreams:\n");

fn other(name: &str, age: PublishOrder, says: &PlanPublication) -> PeerSession {
    PeerSession { gateway: name.to_owned(), age, says: PeerPlan::Published(says.clone()) }
}

/// A plan comparison, and its verdicts about `pay` and `book`.
struct Case {
    agreement: Arc<PlanCompat>,
    accord: RouteVerdicts,
}

impl Case {
    fn new(changes: &[(&str, &str)]) -> Self {
        let gateway = gateway(changes);
        let compat = PlanCompat::new(&gateway, Metrics::for_gateway(&gateway));
        let verdicts = compat.route_verdicts(&gateway.serving);
        Self { agreement: compat, accord: verdicts }
    }

    fn judge(&self, ours: &PlanPublication, others: &[PeerSession]) -> [RouteStatus; 2] {
        self.agreement.evaluate(OURS, ours, others);
        self.statuses()
    }

    fn statuses(&self) -> [RouteStatus; 2] {
        [RouteId(0), RouteId(1)].map(|route| self.accord.route_status(OURS, route))
    }
}

fn refused(by: &str) -> RouteStatus {
    RouteStatus::Incompatible(by.to_owned())
}

/// Of two sessions with incompatible plans the younger one refuses requests, on the incompatible routes only.
#[test]
fn younger_session_refuses_incompatible_routes() {
    let case = Case::new(&[]);
    let ours = published(&[]);
    let theirs = published(&[PAY]);
    assert_eq!(case.statuses(), [RouteStatus::Unknown, RouteStatus::Unknown], "nobody has looked yet");
    let [older, younger] =
        [PublishOrder::Older, PublishOrder::Younger].map(|age| other("gw-2", age, &theirs));
    assert_eq!(case.judge(&ours, &[younger]), [RouteStatus::Compatible, RouteStatus::Compatible]);
    assert_eq!(case.judge(&ours, &[older]), [refused("gw-2"), RouteStatus::Compatible]);
    assert_eq!(case.accord.route_status(OURS + 1, RouteId(1)), RouteStatus::Unknown, "of another session");
    case.agreement.end_session(OURS);
    assert_eq!(case.statuses(), [RouteStatus::Unknown, RouteStatus::Unknown]);
}

/// A plan that cannot be compared is incompatible in all routes, unless its own session is the younger one.
#[test]
fn unreadable_plan_counts_as_incompatible() {
    let case = Case::new(&[]);
    let ours = published(&[]);
    let of = |age, says| PeerSession { gateway: "gw-2".to_owned(), age, says };
    let newer = PlanPublication::from_bytes(br#"{"format": 2}"#.to_vec());
    let all = [refused("gw-2"), refused("gw-2")];
    for says in [PeerPlan::Published(newer), PeerPlan::Unreadable("torn".to_owned()), PeerPlan::Incompatible]
    {
        let younger = [RouteStatus::Compatible, RouteStatus::Compatible];
        assert_eq!(case.judge(&ours, &[of(PublishOrder::Younger, says.clone())]), younger);
        assert_eq!(case.judge(&ours, &[of(PublishOrder::Older, says.clone())]), all);
        assert_eq!(case.judge(&ours, &[of(PublishOrder::Legacy, says)]), all);
    }
}

/// A gateway whose file has `allow_mixed` treats every peer as compatible, until the file no longer has it.
#[test]
fn allowed_mismatch_is_compatible_with_all() {
    let case = Case::new(&[ALLOWED]);
    let ours = published(&[]);
    let older = other("gw-2", PublishOrder::Older, &published(&[PAY]));
    assert_eq!(case.judge(&ours, &[older]), [RouteStatus::Compatible, RouteStatus::Compatible]);
    case.agreement.set_config(&gateway(&[]));
    assert_eq!(case.statuses(), [refused("gw-2"), RouteStatus::Compatible]);
}

/// From its switch on a session is younger than all others, so no other session may be about to serve its routes in
/// another way.
#[test]
fn switch_requires_compatible_remaining_routes() {
    let case = Case::new(&[]);
    let ours = published(&[]);
    let next = published(&[BOOKED]);
    let pay = other("gw-2", PublishOrder::Younger, &published(&[PAY]));
    case.judge(&ours, slice::from_ref(&pay));
    let reason = case
        .agreement
        .begin_switch(OURS, &ours, &next, slice::from_ref(&pay))
        .expect_err("gw-2 would serve `pay`");
    assert!(reason.contains("gw-2") && reason.contains("pay"), "{reason}");
    assert_eq!(case.statuses(), [RouteStatus::Compatible, RouteStatus::Compatible], "nothing has changed");
    // A route that ends may be incompatible: its requests are over.
    let book = other("gw-2", PublishOrder::Younger, &published(&[BOOKED]));
    assert_eq!(case.agreement.begin_switch(OURS, &ours, &next, &[book]), Ok(()));
    assert_eq!(case.statuses(), [RouteStatus::Compatible, RouteStatus::Unknown]);
    // A refused route may stay refused.
    let older = other("gw-3", PublishOrder::Older, &published(&[PAY]));
    case.judge(&ours, &[older.clone(), pay.clone()]);
    assert_eq!(case.agreement.begin_switch(OURS, &ours, &next, &[older, pay]), Ok(()));
}

/// As long as clients hold keys, no other gateway locks them in another way because a session has published another
/// plan.
#[test]
fn leased_key_blocks_incompatible_switch() {
    let leased = ("upstreams:\n", LEASES);
    let permits = |count| format!("\"book/{{path.id}}\", permits: {count}");
    let three = permits(3);
    let four = permits(4);
    let [three, four] = [&three, &four].map(|fence| ("\"book/{path.id}\"", fence.as_str()));
    let case = Case::new(&[leased, three]);
    let [ours, next, without] = [&[leased, three][..], &[leased, four], &[BOOKED]].map(gateway);
    let [ours, next, without] = [&ours, &next, &without].map(|plan| {
        (PlanDigest::from_plan(&plan.serving, plan.leases.as_ref()), PlanCompat::publication(plan))
    });
    let book = other("gw-2", PublishOrder::Younger, &published(&[leased, four]));
    let key = |text| ResourceKey::parse(text).expect("a key");
    let turns = |next: &(PlanDigest, PlanPublication), held: &[&'static str]| {
        case.agreement.set_leases(&next.0, held.iter().map(|text| key(text)).collect());
        case.judge(&ours.1, slice::from_ref(&book));
        case.agreement.begin_switch(OURS, &ours.1, &next.1, slice::from_ref(&book))
    };
    // The gateways change from three permits to four: no gateway waits for another one.
    assert_eq!(turns(&next, &[]), Ok(()));
    for next in [&next, &without] {
        assert_eq!(turns(next, &["shelf/7", "order/7"]), Ok(()), "nobody locks these otherwise");
        let reason = turns(next, &["shelf/7", "book/7"]).expect_err("a client holds it");
        assert!(reason.contains("gw-2") && reason.contains("book/7"), "{reason}");
    }
    let unreadable = PeerSession { says: PeerPlan::Unreadable("torn".to_owned()), ..book };
    let leased = ActiveLeases::new(&ours.0, vec![key("shelf/7")]);
    assert!(leased.conflict_reason(&ours.0, &unreadable, None).is_some(), "nobody knows");
}

/// A pattern that is granted must not be locked in another way at any moment; a withdrawn one matters only for keys
/// that are still held.
#[test]
fn granted_pattern_blocks_incompatible_switch() {
    let leased = ("upstreams:\n", LEASES);
    let case = Case::new(&[leased]);
    let ours = published(&[leased]);
    let next = published(&[leased, PAY]);
    let permits = ("\"book/{path.id}\"", "\"book/{path.id}\", permits: 3");
    let book = other(
        "gw-2",
        PublishOrder::Younger,
        &published(&[("path: \"/book/{id}\"", "path: \"/page/{id}\""), permits]),
    );
    case.judge(&ours, slice::from_ref(&book));
    let reason =
        case.agreement.begin_switch(OURS, &ours, &next, slice::from_ref(&book)).expect_err("it is granted");
    assert!(reason.contains("leases of book/*"), "{reason}");
    let bare = gateway(&[PAY]);
    case.agreement.set_leases(&PlanDigest::from_plan(&bare.serving, None), Vec::new());
    assert_eq!(case.agreement.begin_switch(OURS, &ours, &next, &[book]), Ok(()));
}
