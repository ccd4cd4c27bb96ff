//! Tests when a connection is quiet, and when a client counts as taking nothing of a response.

use super::*;

/// A request is over when both its body and its response are over.
#[test]
fn request_ends_with_body_and_response() {
    let state = ServerConnectionState::new_http1(Instant::now());
    assert!(matches!(state.reading(), ConnectionReadPhase::Head(_)));
    let (body, answer) = state.begin_exchange();
    drop(answer);
    assert_eq!((state.reading(), state.writing()), (ConnectionReadPhase::Busy, NextWriteKind::LastChunk));
    drop(body);
    assert_eq!(state.reading(), ConnectionReadPhase::Idle(None));
    state.mark_head_started();
    assert!(matches!(state.reading(), ConnectionReadPhase::Head(_)));
}

/// An HTTP/2 connection is quiet a while after its last response is written in full.
#[test]
fn http2_is_quiet_after_last_response() {
    let state = ServerConnectionState::new_http2();
    assert!(state.quiet_since().is_some(), "it has asked nothing");
    let (exchange, answering) = state.begin_exchange();
    answering.add_unsent(0);
    drop((exchange, answering));
    state.make_older(ANSWER_LEAVES * 2);
    assert_eq!(state.quiet_since(), None, "given to the HTTP library, and not written");
    state.mark_all_written();
    assert!(state.quiet_since().is_some());
    drop(state.begin_exchange());
    assert_eq!(state.quiet_since(), None, "it was over just now");
    state.make_older(ANSWER_LEAVES);
    assert!(state.quiet_since().is_some());
}

/// An HTTP/1 connection is quiet without a request; while its client sends a head, it is quiet only after a while.
#[test]
fn http1_is_quiet_without_request() {
    let state = ServerConnectionState::new_http1(Instant::now());
    assert_eq!(state.quiet_since(), None, "a head is on its way");
    state.make_older(HEAD_COMES);
    assert!(state.quiet_since().is_some(), "it lets us wait for the rest");
    let (exchange, answering) = state.begin_exchange();
    answering.add_unsent(0);
    drop((exchange, answering));
    state.set_unwritten_response_bytes(0);
    assert_eq!(state.quiet_since(), None, "its answer is not flushed");
    state.mark_all_written();
    assert!(state.quiet_since().is_some());
}

/// A response that the client does not take counts as not taken; one that the upstream holds back does not.
#[test]
fn only_response_unread_by_client_counts() {
    let state = ServerConnectionState::new_http2();
    let (_slow, slow) = state.begin_exchange();
    let (_waits, waits) = state.begin_exchange();
    for round in 1..4 {
        slow.record_poll(round == 1);
        waits.record_poll(false);
        if round > 1 {
            slow.record_poll(true);
        }
        assert_eq!(state.snapshot(), H2Snapshot { exchanges: 2, unsent: false, not_taken: 1 });
    }
    assert_eq!(state.snapshot().not_taken, 2);
    drop((slow, _slow));
    assert_eq!(state.snapshot(), H2Snapshot { exchanges: 1, unsent: false, not_taken: 0 });
    assert_eq!(state.writing(), NextWriteKind::Answers, "frames are nobody's last words");
}

/// A response that the client does not take counts in every one of many snapshots: the interval of snapshots is a
/// quarter of the shorter time limit, so the longer limit can take many.
#[test]
fn unread_response_counts_at_every_snapshot() {
    const LOOKS: u32 = 300;
    let state = ServerConnectionState::new_http2();
    let (_exchange, answering) = state.begin_exchange();
    answering.record_poll(true);
    let seen = (0..LOOKS).fold(0, |_, _| state.snapshot().not_taken);
    assert_eq!(seen, LOOKS);
}

/// A response in the buffer of the HTTP library keeps the connection busy as long as bytes of it are written.
#[test]
fn buffered_response_is_work_while_moving() {
    const PATIENCE: Duration = Duration::from_secs(30);
    let state = ServerConnectionState::new_http2();
    state.unsent.set_write_timeout(PATIENCE);
    let (exchange, answering) = state.begin_exchange();
    answering.add_unsent(1000);
    drop((exchange, answering));
    state.mark_all_written();
    for _ in 0..3 {
        state.make_older(PATIENCE / 4 * 3);
        assert_eq!((state.quiet_since(), state.snapshot().unsent), (None, true));
        state.unsent.remove(100);
    }
    state.unsent.remove(700);
    assert!(state.quiet_since().is_some() && !state.snapshot().unsent, "all of it is written");
    // A stream that was reset leaves bytes that are never written.
    state.begin_exchange().1.add_unsent(1000);
    state.mark_all_written();
    assert_eq!(state.quiet_since(), None);
    state.make_older(PATIENCE);
    assert!(state.quiet_since().is_some() && !state.snapshot().unsent);
}
