//! The answers of a slot to waiting requests while another gateway holds the key.

use std::time::Duration;

use fencegate_policies::{key::KeyTemplate, plan::LockLocation};
use fencegate_process::{clock::ManualClock, randomness::SystemRandomness};
use fencegate_recipe::grant::LockAttemptError;
use fencegate_zookeeper::{
    peer_endpoint::HolderRoute,
    peer_secret::PeerSecret,
    session::{lock_validity::LockValidity, session_deadline::SessionDeadline},
    tenure_end::TenureEndCause,
};
use tokio::sync::oneshot::Receiver;

use super::{remote_position::ROUTE_RETRY_AFTER, table::KeySlotTable, *};
use crate::manager::queue::TenureDecision;

const FAR: BootInstant = BootInstant::from_nanos(1 << 50);

struct KeySlotFixture {
    table: KeySlotTable,
    key: ResourceKey,
    clock: Arc<ManualClock>,
}

impl KeySlotFixture {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        clock.advance(Duration::from_secs(1));
        let key = KeyTemplate::parse("one").expect("a literal").expand(&()).expect("short");
        Self { table: KeySlotTable::new(clock.clone()), key, clock }
    }

    fn enter(&self, waits: LockWaitPlace, patience: QueueJoinPolicy) -> EnterLocalQueueOutcome {
        let mode = LockMode::Exclusive;
        let rules = CachedHoldLimits::default();
        let route = &"pay".into();
        self.table.enter_queue(
            &self.key,
            &LockLocation::Native,
            LocalLockRequest { mode, rules, patience, waits, delay: None, route },
        )
    }

    fn enter_waiting(&self, waits: LockWaitPlace) -> (Receiver<LockReply>, QueuedRequestGuard) {
        match self.enter(waits, QueueJoinPolicy::QueueBehind(9)) {
            EnterLocalQueueOutcome::Waiting { answer, place, .. } => (answer, place),
            _ => panic!("nothing is held here"),
        }
    }

    fn slot(&self) -> Arc<KeySlot> {
        self.table.slot(&self.key).expect("somebody wants it")
    }

    fn grant(&self) -> Arc<SessionDeadline> {
        let deadline = Arc::new(SessionDeadline::new(1, FAR));
        let validity = Arc::new(LockValidity::new(deadline.clone()));
        let slot = self.slot();
        let wanted = slot.first_waiting_request().expect("somebody waits");
        slot.set_granted(
            LockGrant { epoch: 7, sequence: 0, permit: None, validity, nodes: [].into(), contended: false },
            wanted,
        );
        deadline
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

fn received_error((answer, _): &mut (Receiver<LockReply>, QueuedRequestGuard)) -> Option<GrantError> {
    answer.try_recv().ok().map(|answer| answer.expect_err("not granted"))
}

/// Behind a remote holder, requests that need not wait here leave: they are forwarded once the route is known, or
/// refused.
#[test]
fn remote_holder_releases_forwardable_waiters() {
    let fixture = KeySlotFixture::new();
    let mut anywhere = fixture.enter_waiting(LockWaitPlace::Anywhere);
    let mut sent_here = fixture.enter_waiting(LockWaitPlace::AtHolder);
    let mut here = fixture.enter_waiting(LockWaitPlace::Here);
    let slot = fixture.slot();
    let route = holder_route();
    assert!(slot.report_holder_ahead().is_ok());
    assert_eq!(received_error(&mut sent_here), Some(GrantError::NotHolder));
    assert_eq!(received_error(&mut anywhere), None, "until the way is known");
    assert!(slot.take_holder_lookup_request() && !slot.take_holder_lookup_request(), "said once");
    assert!(slot.forward_waiting(&route).is_ok(), "somebody is left");
    assert_eq!(received_error(&mut anywhere), Some(GrantError::Elsewhere(route)));
    assert_eq!(received_error(&mut here), None);
}

/// When all waiters have been forwarded, the attempt ends and the key slot can be removed.
#[test]
fn slot_is_idle_after_forwarding_all() {
    let fixture = KeySlotFixture::new();
    let _one = fixture.enter_waiting(LockWaitPlace::Anywhere);
    let slot = fixture.slot();
    assert!(slot.report_holder_ahead().is_ok() && slot.take_holder_lookup_request());
    assert!(matches!(slot.forward_waiting(&holder_route()), Err(LockAttemptError::CallerGone)));
    assert!(fixture.table.remove_if_idle(&slot), "the key is forgotten");
}

/// A request that does not wait is refused as locked when there is no route to the holder.
#[test]
fn no_wait_request_fails_without_route() {
    let fixture = KeySlotFixture::new();
    let EnterLocalQueueOutcome::Waiting { answer, place, .. } =
        fixture.enter(LockWaitPlace::Anywhere, QueueJoinPolicy::NoWait)
    else {
        panic!("the first one waits for the answer of ZooKeeper");
    };
    let mut trying = (answer, place);
    assert!(fixture.slot().report_holder_ahead().is_ok());
    assert_eq!(received_error(&mut trying), None, "it may be sent on");
    assert!(fixture.slot().report_no_route().is_err());
    assert_eq!(received_error(&mut trying), Some(GrantError::Locked));
}

/// A new waiter causes a route lookup; after a lookup that found no route the next one comes only after
/// `ROUTE_RETRY_AFTER`.
#[test]
fn failed_route_lookup_pauses_before_retry() {
    let fixture = KeySlotFixture::new();
    let _here = fixture.enter_waiting(LockWaitPlace::Here);
    let slot = fixture.slot();
    assert!(slot.report_holder_ahead().is_ok() && !slot.take_holder_lookup_request());
    let _first = fixture.enter_waiting(LockWaitPlace::Anywhere);
    assert!(slot.take_holder_lookup_request());
    assert!(slot.report_no_route().is_ok());
    let _second = fixture.enter_waiting(LockWaitPlace::Anywhere);
    assert!(!slot.take_holder_lookup_request(), "just now there was none");
    fixture.clock.advance(ROUTE_RETRY_AFTER);
    let _third = fixture.enter_waiting(LockWaitPlace::Anywhere);
    assert!(slot.take_holder_lookup_request());
}

/// A forwarded request waits only where the key is held or about to be granted; elsewhere it is refused as
/// `NotHolder`.
#[test]
fn forwarded_request_waits_only_at_holder() {
    let fixture = KeySlotFixture::new();
    let at_holder = || fixture.enter(LockWaitPlace::AtHolder, QueueJoinPolicy::QueueBehind(9));
    assert!(matches!(at_holder(), EnterLocalQueueOutcome::NotHolder), "nobody here wants it");
    assert!(fixture.table.slot(&fixture.key).is_none(), "and it is not asked for");
    let (_waiting, _place) = fixture.enter_waiting(LockWaitPlace::Here);
    let early = at_holder();
    assert!(matches!(early, EnterLocalQueueOutcome::Waiting { .. }), "we get it, and nobody was before us");
    let deadline = fixture.grant();
    assert!(matches!(at_holder(), EnterLocalQueueOutcome::Waiting { .. }), "held, and at work");
    fixture.slot().close(TenureEndCause::Retired);
    assert!(matches!(at_holder(), EnterLocalQueueOutcome::NotHolder), "nothing is started under it any more");
    deadline.revoke();
}

/// When the queue position is lost, forwarded requests are refused at once; local requests wait on.
#[test]
fn lost_position_refuses_only_forwarded_requests() {
    let fixture = KeySlotFixture::new();
    let mut here = fixture.enter_waiting(LockWaitPlace::Here);
    let mut early = fixture.enter_waiting(LockWaitPlace::AtHolder);
    let slot = fixture.slot();
    slot.report_queue_position_lost();
    assert_eq!((received_error(&mut early), received_error(&mut here)), (Some(GrantError::NotHolder), None));
    let at_holder = || fixture.enter(LockWaitPlace::AtHolder, QueueJoinPolicy::QueueBehind(9));
    assert!(matches!(at_holder(), EnterLocalQueueOutcome::NotHolder), "somebody else may hold before us");
    let deadline = fixture.grant();
    let mut guest = fixture.enter_waiting(LockWaitPlace::AtHolder);
    slot.close(TenureEndCause::Session);
    slot.report_queue_position_lost();
    assert_eq!(received_error(&mut guest), Some(GrantError::NotHolder), "though a request is at work");
    deadline.revoke();
}

/// A request that waits because of a remote contender starts under the same grant when the contender is gone.
#[test]
fn waiter_proceeds_after_contention_clears() {
    let fixture = KeySlotFixture::new();
    let (mut first, _place) = fixture.enter_waiting(LockWaitPlace::Here);
    let deadline = fixture.grant();
    let slot = fixture.slot();
    slot.mark_contended(true);
    fixture.clock.advance(CachedHoldLimits::default().max_hold);
    first.try_recv().expect("an answer").expect("granted").mark_upstream_settled();
    let (mut next, _place) = fixture.enter_waiting(LockWaitPlace::Here);
    slot.start_waiting_requests();
    assert!(next.try_recv().is_err(), "its time is up");
    slot.clear_contended();
    next.try_recv().expect("an answer").expect("granted").mark_upstream_settled();
    deadline.revoke();
}

/// A holder ahead of an earlier queue position is not assumed to hold when the slot queues anew.
#[test]
fn requeue_discards_previous_remote_holder() {
    let fixture = KeySlotFixture::new();
    let _first = fixture.enter_waiting(LockWaitPlace::Here);
    let slot = fixture.slot();
    assert!(slot.report_holder_ahead().is_ok());
    assert!(matches!(
        fixture.enter(LockWaitPlace::AtHolder, QueueJoinPolicy::QueueBehind(9)),
        EnterLocalQueueOutcome::NotHolder
    ));
    slot.reset_position();
    assert!(matches!(
        fixture.enter(LockWaitPlace::AtHolder, QueueJoinPolicy::QueueBehind(9)),
        EnterLocalQueueOutcome::Waiting { .. }
    ));
}

/// A key whose grant is revoked does not count as held for forwarded requests.
#[test]
fn revoked_grant_accepts_no_forwarded_request() {
    let fixture = KeySlotFixture::new();
    let (_waiting, _place) = fixture.enter_waiting(LockWaitPlace::Here);
    let deadline = fixture.grant();
    deadline.revoke();
    assert!(matches!(
        fixture.enter(LockWaitPlace::AtHolder, QueueJoinPolicy::QueueBehind(9)),
        EnterLocalQueueOutcome::NotHolder
    ));
}

/// A node that waited while keys changed is not used: requests under the resource's other name may have larger
/// tokens.
#[test]
fn grant_predating_key_change_is_unused() {
    let fixture = KeySlotFixture::new();
    let (mut first, _place) = fixture.enter_waiting(LockWaitPlace::Here);
    let slot = fixture.slot();
    let wanted = slot.first_waiting_request().expect("somebody waits");
    fixture.table.close_all_tenures();
    let deadline = Arc::new(SessionDeadline::new(1, FAR));
    let validity = Arc::new(LockValidity::new(deadline));
    let grant = |epoch| {
        let validity = validity.clone();
        LockGrant { epoch, sequence: 0, permit: None, validity, nodes: [].into(), contended: false }
    };
    slot.set_granted(grant(90), wanted);
    assert!(first.try_recv().is_err(), "granted what it had asked for before");
    assert_eq!(slot.next_action(), TenureDecision::End);
    assert!(slot.end_tenure_if_due(|ended| assert_eq!(
        (ended.cause, ended.dispatches),
        (TenureEndCause::Reloaded, 0)
    )));
    let wanted = slot.first_waiting_request().expect("it waits on");
    slot.set_granted(grant(110), wanted);
    let tenure = first.try_recv().expect("an answer").expect("granted");
    assert_eq!(tenure.next_dispatch().expect("a dispatch").token.number(), 110);
    tenure.mark_upstream_settled();
}

/// With a queue of zero one request may enter, to hold the key; the bound is the same as for strict requests.
#[test]
fn queue_of_zero_admits_only_holder() {
    let fixture = KeySlotFixture::new();
    let enter = |most| fixture.enter(LockWaitPlace::Here, QueueJoinPolicy::QueueBehind(most));
    let EnterLocalQueueOutcome::Waiting { mut answer, place, .. } = enter(0) else {
        panic!("it is about to hold")
    };
    assert!(matches!(enter(0), EnterLocalQueueOutcome::QueueFull));
    let deadline = fixture.grant();
    let tenure = answer.try_recv().expect("an answer").expect("granted");
    drop(place);
    assert!(matches!(enter(0), EnterLocalQueueOutcome::QueueFull), "nobody waits behind it");
    let EnterLocalQueueOutcome::Waiting { .. } = enter(1) else { panic!("one may") };
    tenure.mark_upstream_settled();
    deadline.revoke();
}

/// Callbacks run under the tenure of a cached key, and the key is kept until the innermost one has ended.
#[test]
fn callbacks_keep_key_until_innermost_ends() {
    let fixture = KeySlotFixture::new();
    let call = |from, mode| fixture.table.start_callback(&fixture.key, from, mode).map(|(tenure, _)| tenure);
    let (mut first, _place) = fixture.enter_waiting(LockWaitPlace::Here);
    let deadline = fixture.grant();
    let outer = first.try_recv().expect("an answer").expect("granted");
    let from = outer.next_dispatch().expect("a dispatch").token;
    let (mut next, _place) = fixture.enter_waiting(LockWaitPlace::Here);

    // One request waits here, and a remote contender has waited for long. Even so the tenure is released only after
    // the callbacks have ended.
    fixture.slot().mark_contended(false);
    fixture.clock.advance(CachedHoldLimits::default().max_hold * 2);
    let (inner, held) = fixture.table.start_callback(&fixture.key, from, LockMode::Shared).expect("inside");
    assert_eq!(held, LockMode::Exclusive, "a read under it is one of a writer");
    let deeper =
        call(inner.next_dispatch().expect("a dispatch").token, LockMode::Exclusive).expect("inside that");
    assert_eq!(deeper.next_dispatch().expect("a dispatch").token.dispatch(), 3);
    assert_eq!(call(from, LockMode::Exclusive).map(drop), Err(NestedCallbackError::NotInnermost));
    let other = FencingToken::new(from.number() + 1, 0, 1).expect("small");
    assert_eq!(call(other, LockMode::Exclusive).map(drop), Err(NestedCallbackError::NotHeld));

    for tenure in [&outer, &inner, &deeper] {
        tenure.mark_upstream_settled();
    }
    drop(outer);
    assert_eq!(
        call(from, LockMode::Exclusive).map(drop),
        Err(NestedCallbackError::NotInFlight),
        "it was answered"
    );
    drop(inner);
    assert!(
        next.try_recv().is_err() && matches!(fixture.slot().next_action(), TenureDecision::Keep(_)),
        "the innermost still runs"
    );
    drop(deeper);
    assert_eq!(fixture.slot().next_action(), TenureDecision::End);
    deadline.revoke();
}

/// No callback is started under a grant that is retired or whose session deadline is revoked.
#[test]
fn retired_or_revoked_grant_refuses_callbacks() {
    let fixture = KeySlotFixture::new();
    let (mut first, _place) = fixture.enter_waiting(LockWaitPlace::Here);
    let deadline = fixture.grant();
    let outer = first.try_recv().expect("an answer").expect("granted");
    let from = outer.next_dispatch().expect("a dispatch").token;
    let call = || fixture.table.start_callback(&fixture.key, from, LockMode::Exclusive).map(drop);
    let (inner, _) = fixture.table.start_callback(&fixture.key, from, LockMode::Exclusive).expect("inside");
    inner.next_dispatch().expect("a dispatch");
    drop(inner);
    assert_eq!(call(), Err(NestedCallbackError::Closed), "nobody knows what came of the first one");
    assert!(outer.next_dispatch().is_none(), "nor is anything else sent under it");
    deadline.revoke();
    assert_eq!(call(), Err(NestedCallbackError::Unproven));
    outer.mark_upstream_settled();
}
