//! What a slot tells waiting requests while another gateway keeps the key.

use std::time::Duration;

use fencegate_policies::{key::KeyTemplate, plan::LockSite};
use fencegate_process::{clock::ManualClock, randomness::SystemRandomness};
use tokio::sync::oneshot::Receiver;

use super::{remote_position::ROUTE_RETRY_AFTER, table::KeyTable, *};
use crate::{
    manager::{queue::TenureAction, tenure_end::EndCause},
    peer_endpoint::HolderRoute,
    peer_secret::PeerSecret,
    recipe::grant::LockAttemptError,
    session::{lock_validity::LockValidity, session_deadline::SessionDeadline},
};

const FAR: BootInstant = BootInstant::from_nanos(1 << 50);

struct Fixture {
    table: KeyTable,
    key: ResourceKey,
    clock: Arc<ManualClock>,
}

impl Fixture {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        clock.advance(Duration::from_secs(1));
        let key = KeyTemplate::parse("one").expect("a literal").expand(&()).expect("short");
        Self { table: KeyTable::new(clock.clone()), key, clock }
    }

    fn enter(&self, waits: WaitPlace, patience: WaitLimit) -> EnterOutcome {
        let (mode, rules, route) = (Mode::Exclusive, CachedHold::default(), &"pay".into());
        self.table.enter(
            &self.key,
            &LockSite::Native,
            LocalRequest { mode, rules, patience, waits, delay: None, route },
        )
    }

    fn enter_waiting(&self, waits: WaitPlace) -> (Receiver<LockReply>, QueueGuard) {
        match self.enter(waits, WaitLimit::QueueBehind(9)) {
            EnterOutcome::Waiting { answer, place, .. } => (answer, place),
            _ => panic!("nothing is held here"),
        }
    }

    fn slot(&self) -> Arc<KeySlot> {
        self.table.slot(&self.key).expect("somebody wants it")
    }

    fn grant(&self) -> Arc<SessionDeadline> {
        let proof = Arc::new(SessionDeadline::new(1, FAR));
        let evidence = Arc::new(LockValidity::new(proof.clone()));
        let slot = self.slot();
        let wanted = slot.head_request().expect("somebody waits");
        slot.set_granted(
            Grant {
                epoch: 7,
                sequence: 0,
                permit: None,
                validity: evidence,
                nodes: [].into(),
                contended: false,
            },
            wanted,
        );
        proof
    }
}

fn holder_route() -> HolderRoute {
    let pass = PeerSecret::new(&SystemRandomness);
    HolderRoute {
        gateway: "gw-2".into(),
        member: "gw-2-02".into(),
        address: "gw-2:9910".into(),
        secret: pass,
    }
}

fn received_error((answer, _): &mut (Receiver<LockReply>, QueueGuard)) -> Option<GrantError> {
    answer.try_recv().ok().map(|answer| answer.expect_err("not granted"))
}

#[test]
fn behind_another_holder_everybody_leaves_who_need_not_wait_here() {
    let bench = Fixture::new();
    let mut anywhere = bench.enter_waiting(WaitPlace::Anywhere);
    let mut sent_here = bench.enter_waiting(WaitPlace::AtHolder);
    let mut here = bench.enter_waiting(WaitPlace::Here);
    let (slot, way) = (bench.slot(), holder_route());
    assert!(slot.report_holder_ahead().is_ok());
    assert_eq!(received_error(&mut sent_here), Some(GrantError::NotHolder));
    assert_eq!(received_error(&mut anywhere), None, "until the way is known");
    assert!(slot.take_route_request() && !slot.take_route_request(), "said once");
    assert!(slot.forward(&way).is_ok(), "somebody is left");
    assert_eq!(received_error(&mut anywhere), Some(GrantError::Elsewhere(way)));
    assert_eq!(received_error(&mut here), None);
}

#[test]
fn when_all_are_sent_on_nobody_is_left_to_wait_for() {
    let bench = Fixture::new();
    let _one = bench.enter_waiting(WaitPlace::Anywhere);
    let slot = bench.slot();
    assert!(slot.report_holder_ahead().is_ok() && slot.take_route_request());
    assert!(matches!(slot.forward(&holder_route()), Err(LockAttemptError::CallerGone)));
    assert!(bench.table.remove_if_idle(&slot), "the key is forgotten");
}

#[test]
fn who_does_not_wait_is_refused_when_there_is_no_way() {
    let bench = Fixture::new();
    let EnterOutcome::Waiting { answer, place, .. } = bench.enter(WaitPlace::Anywhere, WaitLimit::NoWait)
    else {
        panic!("the first one waits for the answer of ZooKeeper");
    };
    let mut trying = (answer, place);
    assert!(bench.slot().report_holder_ahead().is_ok());
    assert_eq!(received_error(&mut trying), None, "it may be sent on");
    assert!(bench.slot().report_no_route().is_err());
    assert_eq!(received_error(&mut trying), Some(GrantError::Locked));
}

#[test]
fn who_comes_while_another_one_waits_here_is_asked_for_but_not_for_ever_in_vain() {
    let bench = Fixture::new();
    let _here = bench.enter_waiting(WaitPlace::Here);
    let slot = bench.slot();
    assert!(slot.report_holder_ahead().is_ok() && !slot.take_route_request());
    let _first = bench.enter_waiting(WaitPlace::Anywhere);
    assert!(slot.take_route_request());
    assert!(slot.report_no_route().is_ok());
    let _second = bench.enter_waiting(WaitPlace::Anywhere);
    assert!(!slot.take_route_request(), "just now there was none");
    bench.clock.advance(ROUTE_RETRY_AFTER);
    let _third = bench.enter_waiting(WaitPlace::Anywhere);
    assert!(slot.take_route_request());
}

#[test]
fn what_another_gateway_sends_here_waits_only_where_the_key_is_kept() {
    let bench = Fixture::new();
    let at_holder = || bench.enter(WaitPlace::AtHolder, WaitLimit::QueueBehind(9));
    assert!(matches!(at_holder(), EnterOutcome::NotHolder), "nobody here wants it");
    assert!(bench.table.slot(&bench.key).is_none(), "and it is not asked for");
    let (_waiting, _place) = bench.enter_waiting(WaitPlace::Here);
    let early = at_holder();
    assert!(matches!(early, EnterOutcome::Waiting { .. }), "we get it, and nobody was before us");
    let proof = bench.grant();
    assert!(matches!(at_holder(), EnterOutcome::Waiting { .. }), "held, and at work");
    bench.slot().close(EndCause::Retired);
    assert!(matches!(at_holder(), EnterOutcome::NotHolder), "nothing is started under it any more");
    proof.revoke();
}

#[test]
fn who_was_sent_here_is_told_at_once_when_our_place_is_lost_and_nobody_else_is() {
    let bench = Fixture::new();
    let mut here = bench.enter_waiting(WaitPlace::Here);
    let mut early = bench.enter_waiting(WaitPlace::AtHolder);
    let slot = bench.slot();
    slot.report_place_lost();
    assert_eq!((received_error(&mut early), received_error(&mut here)), (Some(GrantError::NotHolder), None));
    let at_holder = || bench.enter(WaitPlace::AtHolder, WaitLimit::QueueBehind(9));
    assert!(matches!(at_holder(), EnterOutcome::NotHolder), "somebody else may hold before us");
    let proof = bench.grant();
    let mut guest = bench.enter_waiting(WaitPlace::AtHolder);
    slot.close(EndCause::Session);
    slot.report_place_lost();
    assert_eq!(received_error(&mut guest), Some(GrantError::NotHolder), "though a request is at work");
    proof.revoke();
}

#[test]
fn who_waits_because_of_a_contender_elsewhere_goes_on_when_that_one_has_gone() {
    let bench = Fixture::new();
    let (mut first, _place) = bench.enter_waiting(WaitPlace::Here);
    let proof = bench.grant();
    let slot = bench.slot();
    slot.mark_contended(true);
    bench.clock.advance(CachedHold::default().max_hold);
    first.try_recv().expect("an answer").expect("granted").mark_settled();
    let (mut next, _place) = bench.enter_waiting(WaitPlace::Here);
    slot.start_waiting();
    assert!(next.try_recv().is_err(), "its time is up");
    slot.clear_contended();
    next.try_recv().expect("an answer").expect("granted").mark_settled();
    proof.revoke();
}

#[test]
fn who_was_before_us_once_is_not_taken_for_the_holder_when_we_queue_anew() {
    let bench = Fixture::new();
    let _first = bench.enter_waiting(WaitPlace::Here);
    let slot = bench.slot();
    assert!(slot.report_holder_ahead().is_ok());
    assert!(matches!(bench.enter(WaitPlace::AtHolder, WaitLimit::QueueBehind(9)), EnterOutcome::NotHolder));
    slot.reset_position();
    assert!(matches!(
        bench.enter(WaitPlace::AtHolder, WaitLimit::QueueBehind(9)),
        EnterOutcome::Waiting { .. }
    ));
}

#[test]
fn a_tenure_that_is_not_proven_keeps_nothing() {
    let bench = Fixture::new();
    let (_waiting, _place) = bench.enter_waiting(WaitPlace::Here);
    let proof = bench.grant();
    proof.revoke();
    assert!(matches!(bench.enter(WaitPlace::AtHolder, WaitLimit::QueueBehind(9)), EnterOutcome::NotHolder));
}

/// The node that waited may have a smaller token than requests that used the key's other name meanwhile.
#[test]
fn what_waited_while_the_keys_changed_their_names_is_not_used_when_it_is_granted() {
    let bench = Fixture::new();
    let (mut first, _place) = bench.enter_waiting(WaitPlace::Here);
    let slot = bench.slot();
    let wanted = slot.head_request().expect("somebody waits");
    bench.table.close_all();
    let proof = Arc::new(SessionDeadline::new(1, FAR));
    let evidence = Arc::new(LockValidity::new(proof));
    let grant = |epoch| {
        let evidence = evidence.clone();
        Grant { epoch, sequence: 0, permit: None, validity: evidence, nodes: [].into(), contended: false }
    };
    slot.set_granted(grant(90), wanted);
    assert!(first.try_recv().is_err(), "granted what it had asked for before");
    assert_eq!(slot.next_action(), TenureAction::End);
    assert!(slot.take_if_due(|ended| assert_eq!((ended.cause, ended.dispatches), (EndCause::Reloaded, 0))));
    let wanted = slot.head_request().expect("it waits on");
    slot.set_granted(grant(110), wanted);
    let tenure = first.try_recv().expect("an answer").expect("granted");
    assert_eq!(tenure.dispatch().expect("a dispatch").token.number(), 110);
    tenure.mark_settled();
}

/// The bound is the same as for strict requests: `most` wait behind the one that holds, or is about to.
#[test]
fn a_queue_without_places_takes_who_holds_and_nobody_behind() {
    let bench = Fixture::new();
    let enter = |most| bench.enter(WaitPlace::Here, WaitLimit::QueueBehind(most));
    let EnterOutcome::Waiting { mut answer, place, .. } = enter(0) else { panic!("it is about to hold") };
    assert!(matches!(enter(0), EnterOutcome::QueueFull));
    let proof = bench.grant();
    let tenure = answer.try_recv().expect("an answer").expect("granted");
    drop(place);
    assert!(matches!(enter(0), EnterOutcome::QueueFull), "nobody waits behind it");
    let EnterOutcome::Waiting { .. } = enter(1) else { panic!("one may") };
    tenure.mark_settled();
    proof.revoke();
}

/// Callbacks of a service, under the tenure of a cached key.
#[test]
fn what_a_service_calls_back_runs_inside_and_keeps_the_key_until_all_of_it_is_over() {
    let bench = Fixture::new();
    let call = |from, mode| bench.table.call(&bench.key, from, mode).map(|(tenure, _)| tenure);
    let (mut first, _place) = bench.enter_waiting(WaitPlace::Here);
    let proof = bench.grant();
    let outer = first.try_recv().expect("an answer").expect("granted");
    let from = outer.dispatch().expect("a dispatch").token;
    let (mut next, _place) = bench.enter_waiting(WaitPlace::Here);

    // A request waits here, and a contender elsewhere has waited for long. Even so the tenure is given up only after
    // the callbacks.
    bench.slot().mark_contended(false);
    bench.clock.advance(CachedHold::default().max_hold * 2);
    let (inner, held) = bench.table.call(&bench.key, from, Mode::Shared).expect("inside");
    assert_eq!(held, Mode::Exclusive, "a read under it is one of a writer");
    let deeper = call(inner.dispatch().expect("a dispatch").token, Mode::Exclusive).expect("inside that");
    assert_eq!(deeper.dispatch().expect("a dispatch").token.dispatch(), 3);
    assert_eq!(call(from, Mode::Exclusive).map(drop), Err(CallbackError::NotInnermost));
    let other = Token::new(from.number() + 1, 0, 1).expect("small");
    assert_eq!(call(other, Mode::Exclusive).map(drop), Err(CallbackError::NotHeld));

    for tenure in [&outer, &inner, &deeper] {
        tenure.mark_settled();
    }
    drop(outer);
    assert_eq!(call(from, Mode::Exclusive).map(drop), Err(CallbackError::NotInFlight), "it was answered");
    drop(inner);
    assert!(
        next.try_recv().is_err() && matches!(bench.slot().next_action(), TenureAction::Keep(_)),
        "the innermost still runs"
    );
    drop(deeper);
    assert_eq!(bench.slot().next_action(), TenureAction::End);
    proof.revoke();
}

#[test]
fn nothing_is_called_under_a_tenure_that_is_retired_or_not_proven() {
    let bench = Fixture::new();
    let (mut first, _place) = bench.enter_waiting(WaitPlace::Here);
    let proof = bench.grant();
    let outer = first.try_recv().expect("an answer").expect("granted");
    let from = outer.dispatch().expect("a dispatch").token;
    let call = || bench.table.call(&bench.key, from, Mode::Exclusive).map(drop);
    let (inner, _) = bench.table.call(&bench.key, from, Mode::Exclusive).expect("inside");
    inner.dispatch().expect("a dispatch");
    drop(inner);
    assert_eq!(call(), Err(CallbackError::Closed), "nobody knows what came of the first one");
    assert!(outer.dispatch().is_none(), "nor is anything else sent under it");
    proof.revoke();
    assert_eq!(call(), Err(CallbackError::Unproven));
    outer.mark_settled();
}
