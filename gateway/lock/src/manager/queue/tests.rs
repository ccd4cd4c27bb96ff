//! Checks the invariants of the queue under random histories.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const RULES: CachedHoldLimits = CachedHoldLimits {
    linger: Duration::from_millis(250),
    max_local: 3,
    max_hold: Duration::from_millis(100),
    max_tenure: Duration::from_secs(600),
};

/// An event in the history of a key's queue.
#[derive(Debug, Clone)]
enum QueueEvent {
    Arrive(LockMode),
    ArriveTrying(LockMode),
    /// The oldest request in flight ends, with a known or unknown outcome.
    End {
        known: bool,
    },
    /// The service of the newest request in flight calls back.
    Call(LockMode),
    /// A waiting request goes away.
    Leave(usize),
    Contended,
    /// The remote contender has gone.
    Uncontended,
    /// All waiting requests are forwarded to another gateway.
    SentOn,
    Evict,
    Pass(Duration),
    /// The task that works for the key checks its state.
    Look,
    ProofLost,
    ProofBack,
}

fn event() -> impl Strategy<Value = QueueEvent> {
    let mode = prop_oneof![Just(LockMode::Exclusive), Just(LockMode::Shared)];
    prop_oneof![
        6 => mode.clone().prop_map(QueueEvent::Arrive),
        1 => mode.clone().prop_map(QueueEvent::ArriveTrying),
        2 => mode.prop_map(QueueEvent::Call),
        6 => prop::bool::weighted(0.9).prop_map(|known| QueueEvent::End { known }),
        1 => (0_usize..4).prop_map(QueueEvent::Leave),
        1 => Just(QueueEvent::Contended),
        1 => Just(QueueEvent::Uncontended),
        1 => Just(QueueEvent::SentOn),
        1 => Just(QueueEvent::Evict),
        2 => (0_u64..300).prop_map(|millis| QueueEvent::Pass(Duration::from_millis(millis))),
        6 => Just(QueueEvent::Look),
        1 => Just(QueueEvent::ProofLost),
        1 => Just(QueueEvent::ProofBack),
    ]
}

/// The queue, and a model of it that records what has happened.
#[derive(Default)]
struct QueueModel {
    queue: LockQueue<u32, u64>,
    now: u64,
    proof_lost: bool,
    /// Epoch of the last tenure.
    epoch: u64,
    arrivals: u32,
    waiting: VecDeque<(u32, LockMode)>,
    in_flight: VecDeque<(LockMode, u64, u32)>,
    /// Epoch and dispatch number of the request that was started last.
    last: (u64, u32),
    contended_after: Option<u32>,
    closed: bool,
    /// Whether remote contenders may forward their requests here.
    reached: bool,
    gone: Vec<u32>,
}

impl QueueModel {
    fn now(&self) -> BootInstant {
        BootInstant::from_nanos(self.now)
    }

    fn record_start(&mut self, mode: LockMode, started: GrantedLockRequest<u64>) {
        let at = (started.credentials, started.number);
        assert_eq!(at.0, self.epoch, "only the tenure of the moment starts anything");
        assert!(at > self.last, "tokens grow: {at:?} after {:?}", self.last);
        assert!(!self.closed && !self.proof_lost, "nothing starts under a closed or unproven tenure");
        self.last = at;
        let alone = mode == LockMode::Exclusive
            || self.in_flight.iter().any(|(other, ..)| *other == LockMode::Exclusive);
        assert!(!alone || self.in_flight.is_empty(), "a writer works alone");
        if let Some(after) = self.contended_after {
            assert!(at.1 - after <= RULES.max_local, "no more than max_local once somebody else waits");
        }
        self.in_flight.push_back((mode, at.0, at.1));
    }

    fn apply(&mut self, event: QueueEvent) {
        match event {
            QueueEvent::Arrive(mode) => self.arrive(mode, QueueJoinPolicy::QueueBehind(8)),
            QueueEvent::ArriveTrying(mode) => self.arrive(mode, QueueJoinPolicy::NoWait),
            QueueEvent::End { known } => self.end(known),
            QueueEvent::Call(mode) => self.call(mode),
            QueueEvent::Leave(which) => {
                if let Some((id, _)) = self.waiting.remove(which) {
                    self.gone.push(id);
                    self.queue.remove_gone(|caller| *caller == id);
                }
            }
            QueueEvent::Contended => {
                self.queue.mark_contended(self.now());
                self.note_contention();
            }
            QueueEvent::Uncontended => {
                self.queue.clear_contended();
                self.contended_after = None;
            }
            QueueEvent::SentOn => {
                let sent = self.queue.remove_waiting_where(|_| true);
                let waited: Vec<_> = self.waiting.drain(..).map(|(id, _)| id).collect();
                assert_eq!(sent, waited, "everybody who waits, in order, and nobody else");
            }
            QueueEvent::Evict => self.closed |= self.queue.evict(),
            QueueEvent::Pass(time) => self.now += time.as_nanos() as u64,
            QueueEvent::Look => self.run_key_task_once(),
            QueueEvent::ProofLost => self.proof_lost = true,
            QueueEvent::ProofBack => {
                self.proof_lost = false;
                self.start_waiting();
            }
        }
        assert_eq!(self.queue.in_flight_count() as usize, self.in_flight.len());
        assert_eq!(self.queue.waiting_count(), self.waiting.len());
    }

    fn note_contention(&mut self) {
        if self.queue.credentials().is_some() && self.contended_after.is_none() {
            self.contended_after = Some(if self.last.0 == self.epoch { self.last.1 } else { 0 });
        }
    }

    fn arrive(&mut self, mode: LockMode, patience: QueueJoinPolicy) {
        self.arrivals += 1;
        let id = self.arrivals;
        let proven = !self.proof_lost;
        let overtakes = !self.waiting.is_empty();
        match self.queue.arrive(mode, patience, self.now(), |_| proven, || id) {
            QueueArrivalOutcome::Start(started) => {
                assert!(!overtakes, "nobody overtakes");
                self.record_start(mode, started);
            }
            QueueArrivalOutcome::Wait { attend } => {
                assert!(!attend || self.waiting.is_empty(), "only the first one to wait calls for somebody");
                self.waiting.push_back((id, mode));
            }
            QueueArrivalOutcome::Full => assert!(self.waiting.len() >= 8),
            QueueArrivalOutcome::Busy => {
                assert!(self.queue.credentials().is_some() || !self.waiting.is_empty())
            }
        }
    }

    /// In these histories the oldest request ends first, so the newest request is the innermost of its chain.
    fn call(&mut self, mode: LockMode) {
        let Some((held, _, number)) = self.in_flight.back().copied() else { return };
        let proven = !self.proof_lost;
        match self.queue.start_callback(number, mode, |_| proven) {
            Ok(started) => {
                let at = (started.credentials, started.number);
                assert!(at > self.last, "tokens grow: {at:?} after {:?}", self.last);
                assert!(proven && !self.closed, "nothing starts under a closed or unproven tenure");
                assert!(
                    held == LockMode::Exclusive || mode == LockMode::Shared,
                    "a reader becomes no writer"
                );
                self.last = at;
                self.in_flight.push_back((held, at.0, at.1));
            }
            Err(NestedCallbackError::Closed) => assert!(self.closed),
            Err(NestedCallbackError::Unproven) => assert!(!proven),
            Err(NestedCallbackError::Upgrade) => {
                assert_eq!((held, mode), (LockMode::Shared, LockMode::Exclusive))
            }
            Err(error) => assert_eq!(error, NestedCallbackError::TooDeep),
        }
    }

    fn end(&mut self, known: bool) {
        let Some((_, _, first)) = self.in_flight.pop_front() else { return };
        if !known {
            self.queue.close(TenureEndCause::Retired);
            self.closed = true;
        }
        self.queue.finish_request(first, self.now());
        self.start_waiting();
    }

    fn start_waiting(&mut self) {
        let proven = !self.proof_lost;
        while let Some((id, started)) = self.queue.start_next(self.now(), |_| proven) {
            let (first, mode) = self.waiting.pop_front().expect("only who waits is started");
            assert_eq!(id, first, "in the order of arrival");
            self.record_start(mode, started);
        }
    }

    /// Acts as the key's task does: releases the tenure when it is due, and gets another one when a request waits.
    fn run_key_task_once(&mut self) {
        let before = self.queue.credentials().is_some();
        let due = self.queue.next_action(self.now());
        if self
            .waiting
            .front()
            .is_some_and(|(_, mode)| self.in_flight.front().is_some_and(|(held, ..)| held != mode))
        {
            self.note_contention();
        }
        if before && due == TenureDecision::End {
            assert!(self.in_flight.is_empty(), "a tenure stays while something is in flight under it");
            let ended = self.queue.take_idle_tenure(self.now()).expect("there was one");
            assert!(
                !self.closed || matches!(ended.cause, TenureEndCause::Retired | TenureEndCause::Evicted),
                "{ended:?}"
            );
        }
        if self.queue.credentials().is_none()
            && let Some((mode, _)) = self.queue.first_waiting()
        {
            self.epoch += 1;
            (self.closed, self.contended_after) = (false, None);
            self.queue.set_grant(self.epoch, mode, RULES, self.reached, self.now());
            self.start_waiting();
        }
    }

    /// Runs the queue without new events until every waiting request has been served.
    fn drain(&mut self) {
        self.proof_lost = false;
        for _ in 0..1000 {
            self.run_key_task_once();
            self.start_waiting();
            self.end(true);
            self.now += 1_000_000;
            if self.waiting.is_empty() && self.in_flight.is_empty() {
                break;
            }
        }
        assert!(self.waiting.is_empty(), "nobody waits for ever");
        self.now += RULES.linger.as_nanos() as u64;
        self.run_key_task_once();
        assert!(self.queue.credentials().is_none(), "an idle tenure ends after its linger");
        assert!(self.queue.try_end_task());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Under any sequence of events the queue keeps the invariants that the model checks.
    #[test]
    fn queue_matches_model_under_any_history(
        reached: bool,
        events in prop::collection::vec(event(), 0..120),
    ) {
        let mut observed = QueueModel { reached, ..QueueModel::default() };
        for event in events {
            observed.apply(event);
        }
        observed.drain();
    }
}

/// A request that finds an idle grant starts at once, with the next dispatch number and without the key task.
#[test]
fn warm_key_serves_next_request_directly() {
    let mut queue: LockQueue<(), u64> = LockQueue::default();
    let now = BootInstant::from_nanos(0);
    assert_eq!(
        queue.arrive(LockMode::Exclusive, QueueJoinPolicy::QueueBehind(1), now, |_| true, || ()),
        QueueArrivalOutcome::Wait { attend: true }
    );
    queue.set_grant(7, LockMode::Exclusive, RULES, false, now);
    let (_, first) = queue.start_next(now, |_| true).expect("granted");
    queue.finish_request(first.number, now);
    let second = queue.start_if_free(LockMode::Exclusive, now, |_| true).expect("warm");
    assert_eq!((first.number, second.number, second.credentials), (1, 2, 7));
}

#[test]
fn reader_never_overtakes_waiting_writer() {
    let mut queue: LockQueue<u8, u64> = LockQueue::default();
    let now = BootInstant::from_nanos(0);
    let arrive = |queue: &mut LockQueue<u8, u64>, mode, id| {
        queue.arrive(mode, QueueJoinPolicy::QueueBehind(8), now, |_| true, || id)
    };
    arrive(&mut queue, LockMode::Shared, 1);
    queue.set_grant(1, LockMode::Shared, RULES, false, now);
    queue.start_next(now, |_| true).expect("the first reader");
    assert_eq!(arrive(&mut queue, LockMode::Exclusive, 2), QueueArrivalOutcome::Wait { attend: false });
    assert_eq!(arrive(&mut queue, LockMode::Shared, 3), QueueArrivalOutcome::Wait { attend: false });
    queue.finish_request(1, now);
    assert!(queue.start_next(now, |_| true).is_none(), "the writer needs another node");
    assert_eq!(queue.next_action(now), TenureDecision::End);
}

/// A tenure under which one request was served.
fn idle_queue(reached: bool, now: BootInstant) -> LockQueue<(), u64> {
    let mut queue: LockQueue<(), u64> = LockQueue::default();
    queue.arrive(LockMode::Exclusive, QueueJoinPolicy::QueueBehind(1), now, |_| true, || ());
    queue.set_grant(7, LockMode::Exclusive, RULES, reached, now);
    queue.start_next(now, |_| true).expect("granted");
    queue.finish_request(1, now);
    queue
}

/// An idle grant ends at once for a remote waiter. If that waiter may only look for the holder, the grant ends
/// after `GRACE`.
#[test]
fn idle_grant_ends_for_remote_waiter() {
    let now = BootInstant::from_nanos(0);
    let mut waited_for = idle_queue(false, now);
    waited_for.mark_contended(now);
    assert_eq!(waited_for.next_action(now), TenureDecision::End);
    let mut reached = idle_queue(true, now);
    reached.mark_contended(now);
    assert_eq!(reached.next_action(now), TenureDecision::Keep(GRACE));
    assert_eq!(reached.next_action(now + GRACE), TenureDecision::End, "it waits indeed");
    reached.clear_contended();
    assert!(matches!(reached.next_action(now + GRACE), TenureDecision::Keep(_)), "it has gone again");
    reached.mark_contended(now + GRACE);
    reached.end_contention_grace();
    assert_eq!(reached.next_action(now + GRACE), TenureDecision::End, "readers are not sent on");
}
