//! Tests with services that a plan adds, removes, or cannot distinguish from a fenced service.

use super::*;

/// A new service is open at once, and a service whose keys stay remains open.
#[test]
fn new_and_unchanged_services_are_open() {
    let first = first_config();
    let added = "upstreams:\n  c: {endpoints: [\"http://c:80\"], fencing: upstream}\n";
    let (second, openings) = successor_config(&first, &[("upstreams:\n", added)], &[]);
    assert!(openings.is_empty(), "nobody has to wait for anything");
    assert!((0..3).all(|upstream| second.is_generation_open(UpstreamId(upstream))));
}

#[test]
fn waiting_request_resumes_when_generation_opens() {
    let first = first_config();
    let running = first.track_request(A);
    let (second, mut openings) = successor_config(&first, &[KEY], &["pay"]);
    let mut waits = Box::pin(second.wait_generation_open(A));
    assert!(waits.as_mut().now_or_never().is_none());
    assert!(second.wait_generation_open(B).now_or_never().is_some(), "its keys stay");
    drop(running);
    assert_eq!(open_due_generations(&mut openings), 1);
    assert!(waits.now_or_never().is_some());
}

/// A reload drops exactly the key generations of the services whose keys change.
#[test]
fn dropped_generations_belong_to_rekeyed_services() {
    let first = first_config();
    let generations =
        |config: &ActiveConfig| [A, B].map(|upstream| config.upstreams[upstream.0].generation.clone());
    let [pay, book] = generations(&first);
    let (same, _) = successor_config(&first, &[], &[]);
    assert!(ActiveConfig::dropped_generations(&first, &same).is_empty());
    let (second, _) = successor_config(&first, &[KEY], &["pay"]);
    let left = ActiveConfig::dropped_generations(&first, &second);
    assert!(left.len() == 1 && Arc::ptr_eq(&left[0], &pay) && !Arc::ptr_eq(&left[0], &book));
}

/// An upstream counts as protected if its name does not resolve, because the name may then lead to a protected service.
/// Of two upstreams with different addresses each counts by its own routes, and `allow` protects as a fence does.
#[tokio::test]
async fn unresolved_upstream_name_counts_as_protected() {
    let endpoints = [("http://a:80", "http://10.0.0.1:80"), ("http://b:80", "http://10.0.0.2:80")];
    let unfenced = [("fence: {key: \"book/{path.id}\"}", "fence: none")];
    let silent = [("http://10.0.0.2:80", "http://silent.example:80")];
    let allowed = [
        (
            "listeners: {public: {address: ",
            "listeners: {public: {tls: {certificates: [{certificate_file: /a.crt, key_file: /a.key}], client_ca_file: /ca.crt, client_auth: optional, client_name: uri}, address: ",
        ),
        ("fence: {key: \"book/{path.id}\"}", "allow: [{client_name: \"*\"}], fence: none"),
    ];
    for (changes, protected) in [
        (&[&endpoints[..], &unfenced[..]].concat(), [true, false]),
        (&[&endpoints[..], &allowed[..]].concat(), [true, true]),
        (&[&endpoints[..], &unfenced[..], &silent[..]].concat(), [true, true]),
    ] {
        let (plan, _) = build_plan(changes);
        let fleets = UpstreamSet::new(
            &plan,
            AllMetricFamilies::for_gateway(&load(POLICY).plan.expect("sound")).endpoints(),
        );
        let config = ActiveConfig::initial(plan, fleets.expect("no files"), None);
        assert_eq!([config.is_service_protected(A).await, config.is_service_protected(B).await], protected);
    }
}

/// A third upstream, after the two others.
const WITH_C: (&str, &str) = (
    "b: {endpoints: [\"http://b:80\"], fencing: upstream}",
    "b: {endpoints: [\"http://b:80\"], fencing: upstream}\n  c: {endpoints: [\"http://c:80\"], fencing: upstream}",
);
const C: UpstreamId = UpstreamId(2);

/// The requests of an added service do not delay a key change of another service.
#[test]
fn added_service_delays_no_other() {
    let (second, _) = successor_config(&first_config(), &[WITH_C], &[]);
    let added = second.track_request(C);
    let (third, mut openings) = successor_config(&second, &[WITH_C, KEY], &["pay"]);
    assert_eq!(
        (open_due_generations(&mut openings), third.is_generation_open(A)),
        (1, true),
        "it has other resources"
    );
    drop(added);
}

/// A route that moves to an added service with other keys waits for the requests of its former service only.
#[test]
fn moved_route_waits_for_former_service() {
    let first = first_config();
    let pay = first.track_request(A);
    let book = first.track_request(B);
    let moved =
        [("name: book, upstream: b", "name: book, upstream: c"), ("book/{path.id}\"}", "page/{path.id}\"}")];
    let (second, mut openings) = successor_config(&first, &[&[WITH_C], &moved[..]].concat(), &["book"]);
    assert_eq!(
        (open_due_generations(&mut openings), second.is_generation_open(A), second.is_generation_open(C)),
        (0, true, false)
    );
    drop(book);
    assert_eq!(
        (open_due_generations(&mut openings), second.is_generation_open(C)),
        (1, true),
        "it does not wait for another one"
    );
    drop(pay);
}
