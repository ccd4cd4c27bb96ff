//! Services that a plan adds, leaves behind, or cannot tell from a fenced one.

use super::*;

#[test]
fn a_service_that_is_new_is_open_at_once_and_one_whose_keys_stay_is_as_it_was() {
    let first = first();
    let added = "upstreams:\n  c: {endpoints: [\"http://c:80\"], fencing: upstream}\n";
    let (second, openings) = after(&first, &[("upstreams:\n", added)], &[]);
    assert!(openings.is_empty(), "nobody has to wait for anything");
    assert!((0..3).all(|upstream| second.is_open(UpstreamId(upstream))));
}

#[test]
fn who_waits_goes_on_when_the_term_is_opened() {
    let first = first();
    let running = first.track_request(A);
    let (second, mut openings) = after(&first, &[KEY], &["pay"]);
    let mut waits = Box::pin(second.wait_open(A));
    assert!(waits.as_mut().now_or_never().is_none());
    assert!(second.wait_open(B).now_or_never().is_some(), "its keys stay");
    drop(running);
    assert_eq!(open(&mut openings), 1);
    assert!(waits.now_or_never().is_some());
}

#[test]
fn what_a_plan_leaves_behind_are_the_terms_of_services_whose_keys_change() {
    let first = first();
    let terms =
        |edition: &ActiveConfig| [A, B].map(|upstream| edition.upstreams[upstream.0].generation.clone());
    let ([pay, book], (same, _)) = (terms(&first), after(&first, &[], &[]));
    assert!(ActiveConfig::dropped_generations(&first, &same).is_empty());
    let (second, _) = after(&first, &[KEY], &["pay"]);
    let left = ActiveConfig::dropped_generations(&first, &second);
    assert!(left.len() == 1 && Arc::ptr_eq(&left[0], &pay) && !Arc::ptr_eq(&left[0], &book));
}

/// The names are looked up nowhere, so one of them may lead to anything.
#[tokio::test]
async fn a_service_may_be_fenced_by_its_own_routes_or_by_those_of_a_name_that_leads_there() {
    let endpoints = [("http://a:80", "http://10.0.0.1:80"), ("http://b:80", "http://10.0.0.2:80")];
    let unfenced = [("fence: {key: \"book/{path.id}\"}", "fence: none")];
    let silent = [("http://10.0.0.2:80", "http://silent.example:80")];
    for (changes, fenced) in [
        (&[&endpoints[..], &unfenced[..]].concat(), [true, false]),
        (&[&endpoints[..], &unfenced[..], &silent[..]].concat(), [true, true]),
    ] {
        let (plan, _) = build_plan(changes);
        let fleets =
            Upstreams::new(&plan, Metrics::for_gateway(&load(POLICY).plan.expect("sound")).endpoints());
        let edition = ActiveConfig::initial(plan, fleets.expect("no files"));
        assert_eq!([edition.leads_to_fence(A).await, edition.leads_to_fence(B).await], fenced);
    }
}

/// A third upstream, behind the two others.
const WITH_C: (&str, &str) = (
    "b: {endpoints: [\"http://b:80\"], fencing: upstream}",
    "b: {endpoints: [\"http://b:80\"], fencing: upstream}\n  c: {endpoints: [\"http://c:80\"], fencing: upstream}",
);
const C: UpstreamId = UpstreamId(2);

#[test]
fn a_service_that_is_added_is_nobody_else_s() {
    let (second, _) = after(&first(), &[WITH_C], &[]);
    let added = second.track_request(C);
    let (third, mut openings) = after(&second, &[WITH_C, KEY], &["pay"]);
    assert_eq!((open(&mut openings), third.is_open(A)), (1, true), "it has other resources");
    drop(added);
}

#[test]
fn a_route_that_moves_to_an_added_service_with_other_keys_waits_for_its_former_one() {
    let first = first();
    let (pay, book) = (first.track_request(A), first.track_request(B));
    let moved =
        [("name: book, upstream: b", "name: book, upstream: c"), ("book/{path.id}\"}", "page/{path.id}\"}")];
    let (second, mut openings) = after(&first, &[&[WITH_C], &moved[..]].concat(), &["book"]);
    assert_eq!((open(&mut openings), second.is_open(A), second.is_open(C)), (0, true, false));
    drop(book);
    assert_eq!((open(&mut openings), second.is_open(C)), (1, true), "it does not wait for another one");
    drop(pay);
}
