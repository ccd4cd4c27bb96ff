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

/// An agreement, and its answers about `pay` and `book`.
struct Case {
    agreement: Arc<PlanCompat>,
    accord: RouteVerdicts,
}

impl Case {
    fn new(changes: &[(&str, &str)]) -> Self {
        let gateway = gateway(changes);
        let agreement = PlanCompat::new(&gateway, Metrics::for_gateway(&gateway));
        let accord = agreement.route_verdicts(&gateway.serving);
        Self { agreement, accord }
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

#[test]
fn the_younger_one_gives_way_by_the_routes_that_are_unlike() {
    let (case, ours, theirs) = (Case::new(&[]), published(&[]), published(&[PAY]));
    assert_eq!(case.statuses(), [RouteStatus::Unknown, RouteStatus::Unknown], "nobody has looked yet");
    let [older, younger] =
        [PublishOrder::Older, PublishOrder::Younger].map(|age| other("gw-2", age, &theirs));
    assert_eq!(case.judge(&ours, &[younger]), [RouteStatus::Compatible, RouteStatus::Compatible]);
    assert_eq!(case.judge(&ours, &[older]), [refused("gw-2"), RouteStatus::Compatible]);
    assert_eq!(case.accord.route_status(OURS + 1, RouteId(1)), RouteStatus::Unknown, "of another session");
    case.agreement.end_session(OURS);
    assert_eq!(case.statuses(), [RouteStatus::Unknown, RouteStatus::Unknown]);
}

#[test]
fn what_cannot_be_compared_counts_as_unlike_unless_it_gives_way_itself() {
    let (case, ours) = (Case::new(&[]), published(&[]));
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

#[test]
fn who_allows_it_agrees_with_everybody() {
    let (case, ours) = (Case::new(&[ALLOWED]), published(&[]));
    let older = other("gw-2", PublishOrder::Older, &published(&[PAY]));
    assert_eq!(case.judge(&ours, &[older]), [RouteStatus::Compatible, RouteStatus::Compatible]);
    case.agreement.set_config(&gateway(&[]));
    assert_eq!(case.statuses(), [refused("gw-2"), RouteStatus::Compatible]);
}

/// From the moment of its turn a session is younger than all others: what it serves nobody else may be about to.
#[test]
fn a_plan_takes_the_place_of_another_one_where_nobody_disagrees_about_what_goes_on() {
    let (case, ours, next) = (Case::new(&[]), published(&[]), published(&[BOOKED]));
    let pay = other("gw-2", PublishOrder::Younger, &published(&[PAY]));
    case.judge(&ours, slice::from_ref(&pay));
    let why = case
        .agreement
        .begin_switch(OURS, &ours, &next, slice::from_ref(&pay))
        .expect_err("gw-2 would serve `pay`");
    assert!(why.contains("gw-2") && why.contains("pay"), "{why}");
    assert_eq!(case.statuses(), [RouteStatus::Compatible, RouteStatus::Compatible], "nothing has changed");
    // About what does not go on anybody may disagree: it is over.
    let book = other("gw-2", PublishOrder::Younger, &published(&[BOOKED]));
    assert_eq!(case.agreement.begin_switch(OURS, &ours, &next, &[book]), Ok(()));
    assert_eq!(case.statuses(), [RouteStatus::Compatible, RouteStatus::Unknown]);
    // What is refused may go on being refused.
    let older = other("gw-3", PublishOrder::Older, &published(&[PAY]));
    case.judge(&ours, &[older.clone(), pay.clone()]);
    assert_eq!(case.agreement.begin_switch(OURS, &ours, &next, &[older, pay]), Ok(()));
}

/// For as long as clients hold keys, nobody else locks them otherwise because a session has published another plan.
#[test]
fn a_key_that_a_client_holds_keeps_a_session_from_becoming_the_younger_one() {
    let leased = ("upstreams:\n", LEASES);
    let permits = |count| format!("\"book/{{path.id}}\", permits: {count}");
    let (three, four) = (permits(3), permits(4));
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
    // The fleet changes from three permits to four: nobody waits for anybody.
    assert_eq!(turns(&next, &[]), Ok(()));
    for next in [&next, &without] {
        assert_eq!(turns(next, &["shelf/7", "order/7"]), Ok(()), "nobody locks these otherwise");
        let why = turns(next, &["shelf/7", "book/7"]).expect_err("a client holds it");
        assert!(why.contains("gw-2") && why.contains("book/7"), "{why}");
    }
    let unreadable = PeerSession { says: PeerPlan::Unreadable("torn".to_owned()), ..book };
    let leased = ActiveLeases::new(&ours.0, vec![key("shelf/7")]);
    assert!(leased.conflict_reason(&ours.0, &unreadable, None).is_some(), "nobody knows");
}

/// What is granted at any moment is nobody else's, and what is withdrawn is a matter of those who hold it yet.
#[test]
fn a_pattern_that_is_granted_keeps_a_session_from_becoming_the_younger_one() {
    let leased = ("upstreams:\n", LEASES);
    let case = Case::new(&[leased]);
    let (ours, next) = (published(&[leased]), published(&[leased, PAY]));
    let permits = ("\"book/{path.id}\"", "\"book/{path.id}\", permits: 3");
    let book = other(
        "gw-2",
        PublishOrder::Younger,
        &published(&[("path: \"/book/{id}\"", "path: \"/page/{id}\""), permits]),
    );
    case.judge(&ours, slice::from_ref(&book));
    let why =
        case.agreement.begin_switch(OURS, &ours, &next, slice::from_ref(&book)).expect_err("it is granted");
    assert!(why.contains("leases of book/*"), "{why}");
    let bare = gateway(&[PAY]);
    case.agreement.set_leases(&PlanDigest::from_plan(&bare.serving, None), Vec::new());
    assert_eq!(case.agreement.begin_switch(OURS, &ours, &next, &[book]), Ok(()));
}
