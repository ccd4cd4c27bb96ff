//! Tests which requests wait for which other requests when keys are renamed.

mod services;

use fencegate_metrics::AllMetricFamilies;
use fencegate_policies::file::load;
use futures_util::FutureExt;

use super::*;

const A: UpstreamId = UpstreamId(0);
const B: UpstreamId = UpstreamId(1);

const POLICY: &str = concat!(
    include_str!("../../../../policies/tests/two_services.yaml"),
    r#"  - {name: book, upstream: b, match: {methods: [POST], path: "/book/{id}"}, fence: {key: "book/{path.id}"}}
"#
);

fn build_plan(changes: &[(&str, &str)]) -> (Arc<CommonServingPlan>, Arc<UpstreamSet>) {
    let mut text = POLICY.to_owned();
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    let gateway = load(&text).plan.expect("sound");
    let plan = Arc::new(gateway.serving.clone());
    let fleets = UpstreamSet::for_display(&plan, AllMetricFamilies::for_gateway(&gateway).endpoints());
    (plan, fleets)
}

fn first_config() -> Arc<ActiveConfig> {
    let (plan, fleets) = build_plan(&[]);
    ActiveConfig::initial(plan, fleets, None)
}

fn successor_config(
    old: &ActiveConfig,
    changes: &[(&str, &str)],
    rekeyed: &[&str],
) -> (Arc<ActiveConfig>, Vec<PendingKeyRulesGeneration>) {
    let (plan, fleets) = build_plan(changes);
    let rekeyed: Vec<String> = rekeyed.iter().map(|name| (*name).to_owned()).collect();
    ActiveConfig::successor(old, plan, fleets, None, &rekeyed)
}

/// Opens the key generations that are due, as the process does, and counts them.
fn open_due_generations(openings: &mut Vec<PendingKeyRulesGeneration>) -> usize {
    let (due, still): (Vec<_>, Vec<_>) =
        openings.drain(..).partition(|opening| opening.wait_predecessors().now_or_never().is_some());
    *openings = still;
    let opened = due.len();
    due.into_iter().for_each(PendingKeyRulesGeneration::open);
    opened
}

const KEY: (&str, &str) = ("\"order/{path.id}\"", "\"pay/{path.id}\"");

/// A service whose keys change opens when its requests under the old keys have ended; it does not wait for requests
/// of other services.
#[test]
fn rekeyed_service_waits_for_old_requests() {
    let first = first_config();
    assert!(first.is_generation_open(A));
    let pay = first.track_request(A);
    let book = first.track_request(B);
    let (second, mut openings) = successor_config(&first, &[KEY], &["pay"]);
    assert_eq!((second.is_generation_open(A), second.is_generation_open(B)), (false, true));
    assert_eq!(open_due_generations(&mut openings), 0, "an old request still runs");
    drop(book);
    assert_eq!(open_due_generations(&mut openings), 0, "and it is not this one");
    drop(pay);
    assert_eq!(open_due_generations(&mut openings), 1);
    assert!(second.is_generation_open(A));
}

/// After a second key change a service opens only when the requests of both earlier generations have ended.
#[test]
fn second_key_change_waits_for_both() {
    let first = first_config();
    let oldest = first.track_request(A);
    let (second, mut openings) = successor_config(&first, &[KEY], &["pay"]);
    let (third, more) = successor_config(&second, &[], &["pay"]);
    openings.extend(more);
    assert_eq!(open_due_generations(&mut openings), 0, "nobody runs under the second, but under the first");
    let waits = second.track_request(A);
    drop(oldest);
    assert_eq!(
        (open_due_generations(&mut openings), second.is_generation_open(A), third.is_generation_open(A)),
        (1, true, false)
    );
    drop(waits);
    assert_eq!((open_due_generations(&mut openings), third.is_generation_open(A)), (1, true));
}

/// While an earlier key change of a service still waits, a change that moves no key of the service keeps it closed.
#[test]
fn unrelated_change_inherits_pending_wait() {
    let first = first_config();
    let oldest = first.track_request(A);
    let (second, mut openings) = successor_config(&first, &[KEY], &["pay"]);
    let (third, more) = successor_config(&second, &[KEY, ("http://b:80", "http://c:80")], &[]);
    // This change moves only the keys of another service.
    let (fourth, also) = successor_config(&third, &[KEY, ("book/{path.id}", "page/{path.id}")], &["book"]);
    openings.extend(more.into_iter().chain(also));
    assert_eq!(open_due_generations(&mut openings), 1, "that of the other service");
    assert_eq!([&second, &third, &fourth].map(|config| config.is_generation_open(A)), [false; 3]);
    assert!(fourth.is_generation_open(B));
    drop(oldest);
    assert_eq!(open_due_generations(&mut openings), 1);
    assert_eq!([&second, &third, &fourth].map(|config| config.is_generation_open(A)), [true; 3]);
}

/// A key change also waits for requests that began before an earlier change that moved no key.
#[test]
fn unrelated_change_keeps_tracking_old_requests() {
    let first = first_config();
    let oldest = first.track_request(A);
    let (second, none) = successor_config(&first, &[("http://b:80", "http://c:80")], &[]);
    assert!(none.is_empty() && second.is_generation_open(A));
    let (third, mut openings) = successor_config(&second, &[KEY], &["pay"]);
    assert_eq!((open_due_generations(&mut openings), third.is_generation_open(A)), (0, false));
    drop(oldest);
    assert_eq!((open_due_generations(&mut openings), third.is_generation_open(A)), (1, true));
}

/// After an upstream was renamed, even with another endpoint, its route waits for requests that began under the old
/// name.
#[test]
fn renamed_upstream_waits_for_old_requests() {
    let renamed = [("upstream: a", "upstream: ledger"), ("  a:", "  ledger:")];
    let moved = [("upstream: a", "upstream: ledger"), ("  a:", "  ledger:"), ("http://a:80", "http://z:80")];
    for changes in [&renamed[..], &moved] {
        let first = first_config();
        let oldest = first.track_request(A);
        let (second, mut openings) = successor_config(&first, changes, &["pay"]);
        assert_eq!(
            (open_due_generations(&mut openings), second.is_generation_open(A), second.is_generation_open(B)),
            (0, false, true)
        );
        drop(oldest);
        assert_eq!((open_due_generations(&mut openings), second.is_generation_open(A)), (1, true));
    }
}

/// If a key of one upstream changes, the upstream and another one with the same host both close, and wait for the
/// requests of both.
#[test]
fn upstreams_sharing_host_wait_together() {
    // One host with two ports: both ports belong to one service.
    for shared in ["http://b:80\", \"http://a:80\"", "http://b:80\", \"http://a:443\""] {
        let shared = [("http://b:80\"", shared)];
        let (plan, fleets) = build_plan(&shared);
        let first = ActiveConfig::initial(plan, fleets, None);
        let book = first.track_request(B);
        let (second, mut openings) = successor_config(&first, &[shared[0], KEY], &["pay"]);
        assert_eq!((second.is_generation_open(A), second.is_generation_open(B)), (false, false));
        assert_eq!(open_due_generations(&mut openings), 0);
        drop(book);
        assert_eq!(
            (open_due_generations(&mut openings), second.is_generation_open(A), second.is_generation_open(B)),
            (1, true, true)
        );
    }
}

/// A service that is removed and added again opens when the requests from before its removal have ended.
#[test]
fn returning_service_waits_for_old_requests() {
    let first = first_config();
    let oldest = first.track_request(A);
    let (second, mut openings) = successor_config(&first, &WITHOUT_PAY, &["pay"]);
    // The plan without the service has no key generation to open.
    assert_eq!(open_due_generations(&mut openings), 0);
    let (third, more) = successor_config(&second, &[KEY], &["pay"]);
    openings.extend(more);
    assert_eq!((open_due_generations(&mut openings), third.is_generation_open(A)), (0, false));
    drop(oldest);
    assert_eq!((open_due_generations(&mut openings), third.is_generation_open(A)), (1, true));
}

/// A service whose endpoints change while its keys stay remains open, in the same key generation.
#[test]
fn endpoint_change_keeps_generation() {
    let first = first_config();
    let _oldest = first.track_request(A);
    let (second, openings) = successor_config(&first, &[("http://a:80", "http://a:81")], &[]);
    assert!(openings.is_empty() && second.is_generation_open(A));
    assert!(Arc::ptr_eq(&first.upstreams[0].generation, &second.upstreams[0].generation));
}

const WITHOUT_PAY: [(&str, &str); 2] = [
    ("  a: {endpoints: [\"http://a:80\"], fencing: upstream}\n", ""),
    (
        "  - {name: pay, upstream: a, match: {methods: [POST], path: \"/pay/{id}\"}, fence: {key: \"order/{path.id}\", wait: 2s}}\n",
        "",
    ),
];

/// A route to another upstream at another endpoint. Only the order of the reloads shows that it may take over
/// requests of `pay`.
const CHARGE: [(&str, &str); 3] = [
    ("  a: {endpoints: [\"http://a:80\"]", "  z: {endpoints: [\"http://z:80\"]"),
    ("name: pay, upstream: a", "name: charge, upstream: z"),
    ("/pay/{id}\"}, fence: {key: \"order/{path.id}\"", "/charge/{id}\"}, fence: {key: \"pay/{path.id}\""),
];

/// Requests of a removed route that return at another service wait for the requests from before the removal.
#[test]
fn route_returning_at_other_service_waits() {
    let first = first_config();
    let oldest = first.track_request(A);
    let (second, mut openings) = successor_config(&first, &WITHOUT_PAY, &["pay"]);
    // A reload between the two others moves no key.
    let (third, more) =
        successor_config(&second, &[&WITHOUT_PAY[..], &[("http://b:80", "http://c:80")]].concat(), &[]);
    openings.extend(more);
    let (fourth, more) = successor_config(&third, &CHARGE, &["charge"]);
    openings.extend(more);
    assert_eq!(
        (open_due_generations(&mut openings), fourth.is_generation_open(A), fourth.is_generation_open(B)),
        (0, false, true)
    );
    drop(oldest);
    assert_eq!((open_due_generations(&mut openings), fourth.is_generation_open(A)), (1, true));
    let (fifth, _) = successor_config(&fourth, &CHARGE, &[]);
    assert!(fifth.is_generation_open(A) && fifth.moved_generations.is_empty(), "what is over is forgotten");
}

/// A route that takes over requests that another route gave up some reloads earlier waits for the requests from
/// before that, as it would if both changes came in one reload.
#[test]
fn later_takeover_waits_for_former_route() {
    let first = first_config();
    let oldest = first.track_request(A);
    let narrowed = ("path: \"/pay/{id}\"", "path: \"/pay/eu/{id}\"");
    let (second, mut openings) = successor_config(&first, &[narrowed], &["pay"]);
    // This request waits for the oldest one, and is one that the narrowed route still matches.
    let newer = second.track_request(A);
    let widened = ("path: \"/book/{id}\"", "path: \"/{what}/{id}\"");
    let (third, more) = successor_config(&second, &[narrowed, widened], &["book"]);
    openings.extend(more);
    assert_eq!(
        (open_due_generations(&mut openings), third.is_generation_open(A), third.is_generation_open(B)),
        (0, false, false)
    );
    drop(oldest);
    assert_eq!(
        (open_due_generations(&mut openings), third.is_generation_open(A), third.is_generation_open(B)),
        (2, true, true)
    );
    drop(newer);
}

/// A route that begins to fence requests that another route gave up waits for the requests from before that, also if
/// it has served such requests without a fence for some time.
#[test]
fn newly_fenced_route_waits_for_predecessor() {
    let unfenced = ("fence: {key: \"book/{path.id}\"}", "fence: none");
    let rest = ("path: \"/book/{id}\"", "path: \"/{what}/{id}\"");
    let (plan, fleets) = build_plan(&[unfenced, rest]);
    let first = ActiveConfig::initial(plan, fleets, None);
    let oldest = first.track_request(A);
    let without = [&WITHOUT_PAY[1..], &[unfenced, rest]].concat();
    let (second, mut openings) = successor_config(&first, &without, &["pay"]);
    let (third, more) = successor_config(&second, &[&WITHOUT_PAY[1..], &[rest]].concat(), &["book"]);
    openings.extend(more);
    assert_eq!((open_due_generations(&mut openings), third.is_generation_open(B)), (0, false));
    drop(oldest);
    assert_eq!(
        (open_due_generations(&mut openings), third.is_generation_open(A), third.is_generation_open(B)),
        (2, true, true)
    );
}

/// A route that takes over requests waits for those of a former route that lost its fence before it was removed.
#[test]
fn unfenced_then_removed_route_delays_successor() {
    let first = first_config();
    let oldest = first.track_request(A);
    let unfenced = ("fence: {key: \"order/{path.id}\", wait: 2s}", "fence: none");
    let (second, mut openings) = successor_config(&first, &[unfenced], &["pay"]);
    let (third, more) = successor_config(&second, &CHARGE, &["charge"]);
    openings.extend(more);
    assert_eq!(
        (open_due_generations(&mut openings), third.is_generation_open(A), third.is_generation_open(B)),
        (0, false, true)
    );
    drop(oldest);
    assert_eq!((open_due_generations(&mut openings), third.is_generation_open(A)), (2, true));
}

/// A route that keeps its own requests under a new key does not wait for the requests of a removed route.
#[test]
fn rekeyed_route_ignores_removed_route() {
    let first = first_config();
    let _oldest = first.track_request(A);
    let (second, _) = successor_config(&first, &WITHOUT_PAY, &["pay"]);
    let changed = [WITHOUT_PAY[0], WITHOUT_PAY[1], ("book/{path.id}", "page/{path.id}")];
    let (third, mut openings) = successor_config(&second, &changed, &["book"]);
    assert_eq!(
        (open_due_generations(&mut openings), third.is_generation_open(A)),
        (1, true),
        "the first of this plan is `b`"
    );
}

const WITHOUT_BOOK: [(&str, &str); 2] = [
    ("  b: {endpoints: [\"http://b:80\"], fencing: upstream}\n", ""),
    (
        "  - {name: book, upstream: b, match: {methods: [POST], path: \"/book/{id}\"}, fence: {key: \"book/{path.id}\"}}\n",
        "",
    ),
];

/// A service that is removed by the same reload that rekeys another one waits for its old requests when it returns.
#[test]
fn service_removed_alongside_rekey_is_tracked() {
    let first = first_config();
    let oldest = first.track_request(B);
    // One reload changes the keys of the route that stays, and removes the other route.
    let (second, mut openings) =
        successor_config(&first, &[KEY, WITHOUT_BOOK[0], WITHOUT_BOOK[1]], &["pay", "book"]);
    assert_eq!((open_due_generations(&mut openings), second.is_generation_open(A)), (0, false));
    let (third, more) = successor_config(&second, &[KEY, ("book/{path.id}", "page/{path.id}")], &["book"]);
    openings.extend(more);
    assert_eq!(
        (open_due_generations(&mut openings), third.is_generation_open(B)),
        (0, false),
        "one still runs under the key before"
    );
    drop(oldest);
    // When the first key generation has ended, the second one can open.
    assert_eq!(
        (
            open_due_generations(&mut openings),
            open_due_generations(&mut openings),
            third.is_generation_open(B)
        ),
        (1, 1, true)
    );
}

/// An upstream that takes over an endpoint waits for the requests of the upstream that had the endpoint before.
#[test]
fn endpoint_takeover_waits_for_former_upstream() {
    let first = first_config();
    let oldest = first.track_request(A);
    let moved = ("http://a:80", "http://a:81");
    let (second, none) = successor_config(&first, &[moved], &[]);
    assert!(none.is_empty() && second.is_generation_open(A));
    let taken = [moved, ("http://b:80", "http://a:80"), ("book/{path.id}", "pay/{path.id}")];
    let (third, mut openings) = successor_config(&second, &taken, &["book"]);
    assert_eq!((open_due_generations(&mut openings), third.is_generation_open(B)), (0, false));
    drop(oldest);
    assert_eq!((open_due_generations(&mut openings), third.is_generation_open(B)), (1, true));
}

/// A request that a worker begins under the old plan, after a reload has removed its service, delays a later key
/// change.
#[test]
fn request_on_lagging_worker_is_tracked() {
    let first = first_config();
    let (second, mut openings) = successor_config(&first, &WITHOUT_BOOK, &["book"]);
    assert!(openings.is_empty());
    // One worker has not switched to the second plan yet.
    let late = first.track_request(B);
    let (third, more) = successor_config(&second, &[("book/{path.id}", "page/{path.id}")], &["book"]);
    openings.extend(more);
    assert_eq!((open_due_generations(&mut openings), third.is_generation_open(B)), (0, false));
    drop(late);
    assert_eq!((open_due_generations(&mut openings), third.is_generation_open(B)), (1, true));
}

/// A removed service is kept once, however often plans alternate, and is forgotten when its requests have ended.
#[test]
fn removed_services_are_forgotten_when_idle() {
    let first = first_config();
    let running = (first.track_request(A), first.track_request(B));
    // Two plans alternate. A service that a plan leaves out is kept only once.
    let mut now = first;
    for port in [81, 82, 81, 82, 81] {
        let moved = format!("http://a:{port}");
        now = successor_config(&now, &[("http://a:80", &moved), WITHOUT_BOOK[0], WITHOUT_BOOK[1]], &[]).0;
    }
    assert_eq!(now.upstreams.len(), 4, "a at 81; and a at 80, a at 82, and b");
    drop(running);
    let moved = [("http://a:80", "http://a:81"), WITHOUT_BOOK[0], WITHOUT_BOOK[1]];
    assert_eq!(successor_config(&now, &moved, &[]).0.upstreams.len(), 1);
}
