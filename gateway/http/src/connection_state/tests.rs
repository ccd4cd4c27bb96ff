//! When a connection is quiet, and when a client counts as taking nothing.

use super::*;

#[test]
fn a_request_is_over_when_both_its_body_and_its_answer_are() {
    let course = ConnectionState::new_http1(Instant::now());
    assert!(matches!(course.reading(), ReadState::Head(_)));
    let (body, answer) = course.begin();
    drop(answer);
    assert_eq!((course.reading(), course.writing()), (ReadState::Busy, WriteState::LastChunk));
    drop(body);
    assert_eq!(course.reading(), ReadState::Idle(None));
    course.record_read();
    assert!(matches!(course.reading(), ReadState::Head(_)));
}

#[test]
fn an_http2_connection_is_quiet_when_its_last_answer_is_written_and_was_so_for_a_while() {
    let course = ConnectionState::new_http2();
    assert!(course.quiet_since().is_some(), "it has asked nothing");
    let (exchange, answering) = course.begin();
    answering.add_unsent(0);
    drop((exchange, answering));
    course.age(ANSWER_LEAVES * 2);
    assert_eq!(course.quiet_since(), None, "given to the HTTP library, and not written");
    course.mark_written();
    assert!(course.quiet_since().is_some());
    drop(course.begin());
    assert_eq!(course.quiet_since(), None, "it was over just now");
    course.age(ANSWER_LEAVES);
    assert!(course.quiet_since().is_some());
}

#[test]
fn an_http1_connection_is_quiet_without_a_request_and_one_that_sends_its_head_is_not_at_once() {
    let course = ConnectionState::new_http1(Instant::now());
    assert_eq!(course.quiet_since(), None, "a head is on its way");
    course.age(HEAD_COMES);
    assert!(course.quiet_since().is_some(), "it lets us wait for the rest");
    let (exchange, answering) = course.begin();
    answering.add_unsent(0);
    drop((exchange, answering));
    course.set_owed(0);
    assert_eq!(course.quiet_since(), None, "its answer is not flushed");
    course.mark_written();
    assert!(course.quiet_since().is_some());
}

#[test]
fn an_answer_that_nobody_takes_is_seen_and_one_that_the_upstream_keeps_back_is_not() {
    let course = ConnectionState::new_http2();
    let (_slow, slow) = course.begin();
    let (_waits, waits) = course.begin();
    for round in 1..4 {
        slow.record_poll(round == 1);
        waits.record_poll(false);
        if round > 1 {
            slow.record_poll(true);
        }
        assert_eq!(course.snapshot(), H2Snapshot { exchanges: 2, unsent: false, not_taken: 1 });
    }
    assert_eq!(course.snapshot().not_taken, 2);
    drop((slow, _slow));
    assert_eq!(course.snapshot(), H2Snapshot { exchanges: 1, unsent: false, not_taken: 0 });
    assert_eq!(course.writing(), WriteState::Answers, "frames are nobody's last words");
}

/// There are four looks in the shorter of two time limits, so the longer one takes many looks.
#[test]
fn an_answer_that_nobody_takes_is_seen_as_often_as_it_is_looked_at() {
    const LOOKS: u32 = 300;
    let course = ConnectionState::new_http2();
    let (_exchange, answering) = course.begin();
    answering.record_poll(true);
    let seen = (0..LOOKS).fold(0, |_, _| course.snapshot().not_taken);
    assert_eq!(seen, LOOKS);
}

#[test]
fn what_the_library_has_of_an_answer_is_work_for_as_long_as_some_of_it_moves() {
    const PATIENCE: Duration = Duration::from_secs(30);
    let course = ConnectionState::new_http2();
    course.unsent.set_patience(PATIENCE);
    let (exchange, answering) = course.begin();
    answering.add_unsent(1000);
    drop((exchange, answering));
    course.mark_written();
    for _ in 0..3 {
        course.age(PATIENCE / 4 * 3);
        assert_eq!((course.quiet_since(), course.snapshot().unsent), (None, true));
        course.unsent.remove(100);
    }
    course.unsent.remove(700);
    assert!(course.quiet_since().is_some() && !course.snapshot().unsent, "all of it is written");
    // The rest of a stream that was reset is never written.
    course.begin().1.add_unsent(1000);
    course.mark_written();
    assert_eq!(course.quiet_since(), None);
    course.age(PATIENCE);
    assert!(course.quiet_since().is_some() && !course.snapshot().unsent);
}
