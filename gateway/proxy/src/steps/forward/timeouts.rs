//! Decides how long the gateway waits for an answer, and how long the body of a request may take.

use std::{rc::Rc, time::Duration};

use fencegate_policies::plan::FencingLevel;
use fencegate_process::clock::{SendPermission, SharedClock};
use tokio::time::{Instant, sleep_until};

use fencegate_http::{
    body::Body,
    connection_state::{RequestBodyState, ServerExchange},
};
use fencegate_http_client::upstream::connection::LastWriteTracker;

/// The time limits of one attempt.
pub(super) struct UpstreamAttemptTimeouts {
    /// The exchange with the client, if the body is sent while the client still uploads it.
    pub(super) upload: Option<Rc<ServerExchange>>,
    /// True for a fenced request. If its body was buffered in full, the limit counts from its dispatch.
    pub(super) fenced: bool,
    /// The moment by which the whole body must have been sent. The body checks this as well, but only when it is
    /// polled for more data, and an upstream that reads nothing does not cause a poll.
    by: Option<Instant>,
}

/// The side that was too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptTimeoutKind {
    /// The upstream did not answer in time.
    Response,
    /// The upstream did not read the body in time.
    UpstreamRead,
    /// The client did not send the body in time.
    ClientUpload,
}

impl UpstreamAttemptTimeouts {
    pub(super) fn new(body: &Body, fenced: bool) -> Self {
        Self { upload: body.upload_exchange(), fenced, by: body.deadline() }
    }

    /// Returns when a limit has passed. A streamed upload may be long: the limit counts from its last sent byte, and
    /// does not run while the gateway waits for the client, for which the body has a limit of its own. But a slow
    /// upstream must not hold a key without bound. So for an upload with a deadline the last byte counts as sent at
    /// the deadline at the latest.
    pub(super) async fn wait_elapsed(
        &self,
        progress: LastWriteTracker,
        limit: Duration,
    ) -> AttemptTimeoutKind {
        let mut last = Instant::now();
        loop {
            let answer_due = last + limit;
            sleep_until(self.answer_deadline(limit).map_or(answer_due, |end| end.min(answer_due))).await;
            let now = Instant::now();
            if self.answer_deadline(limit).is_some_and(|end| end <= now) {
                return self.timeout_kind();
            }
            let moved = match self.upload.as_ref().map(|upload| upload.body_state()) {
                Some(RequestBodyState::Awaited) => now,
                Some(RequestBodyState::Receiving(then)) => then.max(progress.last_write()),
                _ => progress.last_write(),
            };
            let moved = moved.max(last);
            if answer_due <= now && (moved == last || (self.fenced && self.upload.is_none())) {
                return AttemptTimeoutKind::Response;
            }
            last = moved;
        }
    }

    /// The latest moment for the answer; `None` if the body has no deadline.
    fn answer_deadline(&self, limit: Duration) -> Option<Instant> {
        self.by.map(|by| if self.is_uploading() { by } else { by + limit })
    }

    /// The side for which the gateway waits at the deadline of the upload.
    fn timeout_kind(&self) -> AttemptTimeoutKind {
        match &self.upload {
            Some(upload) if upload.stalled.get() || upload.body_state() == RequestBodyState::Awaited => {
                upload.stalled.set(true);
                AttemptTimeoutKind::ClientUpload
            }
            Some(_) if self.is_uploading() => AttemptTimeoutKind::UpstreamRead,
            _ => AttemptTimeoutKind::Response,
        }
    }

    fn is_uploading(&self) -> bool {
        self.upload.as_ref().is_some_and(|upload| upload.body_state() != RequestBodyState::Complete)
    }

    /// Returns when the lock validity has ended while the body is being sent: the rest of it is then never sent.
    /// After the body was sent, returns as [`wait_lock_lost`] does.
    pub(super) async fn wait_lock_validity_end(
        &self,
        validity: Option<&dyn SendPermission>,
        level: FencingLevel,
        clock: &SharedClock,
    ) {
        if let (Some(validity), true) = (validity, self.is_uploading()) {
            validity.wait_expired(clock).await;
            if self.is_uploading() {
                return;
            }
        }
        wait_lock_lost(validity, level, clock).await;
    }
}

/// Returns when the lock may be lost and the upstream would not notice. If the upstream compares tokens, the gateway
/// waits for the answer of a request that was written in full: that answer is correct in any case.
pub async fn wait_lock_lost(validity: Option<&dyn SendPermission>, level: FencingLevel, clock: &SharedClock) {
    match (validity, level) {
        // The next holder waits at most for the delay, and then assumes that this request is over.
        (Some(validity), FencingLevel::None | FencingLevel::Delay(_)) => validity.wait_expired(clock).await,
        (None, _) | (_, FencingLevel::Guard | FencingLevel::Upstream) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::{
        io::{AsyncWriteExt, duplex},
        time::sleep,
    };

    use super::*;
    use fencegate_http::connection_state::ServerConnectionState;
    use fencegate_http_client::upstream::gate::{GatedIo, WriteGate};
    use fencegate_process::clock::ManualClock;

    const LIMIT: Duration = Duration::from_millis(300);
    const UPLOAD: Duration = Duration::from_millis(900);

    /// Returns how long the gateway waits for an upload, and which side was late. `coming` maps the time since the
    /// beginning to the state of the upload. The upstream reads a byte every 50 milliseconds, without end.
    async fn wait_for_upload(
        coming: impl Fn(Duration) -> RequestBodyState,
    ) -> (Duration, AttemptTimeoutKind) {
        let began = Instant::now();
        let (upload, _answering) = ServerConnectionState::new_http2().begin_exchange();
        let timeouts =
            UpstreamAttemptTimeouts { upload: Some(upload.clone()), fenced: true, by: Some(began + UPLOAD) };
        let gate = Rc::new(WriteGate::new(Arc::<ManualClock>::default()));
        let (near, _far) = duplex(1024);
        let mut upstream = GatedIo::new(near, gate.clone());
        let trickle = async {
            loop {
                upstream.write_all(b"x").await.expect("open");
                upload.set_body_state(coming(began.elapsed()));
                sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            // The upstream gets its byte before the limit is checked, also on a busy machine.
            biased;
            () = trickle => unreachable!("it has no end"),
            late = timeouts.wait_elapsed(LastWriteTracker::Bytes(gate), LIMIT) => (began.elapsed(), late),
            () = sleep(Duration::from_secs(10)) => panic!("it is waited for as long as the upstream likes"),
        }
    }

    /// A slow upload ends in time, and its timeout names the side for which the gateway waited.
    #[tokio::test]
    async fn slow_upload_times_out_by_cause() {
        let began = Instant::now();
        let (taking, late) = wait_for_upload(|_| RequestBodyState::Receiving(began)).await;
        assert!(taking >= UPLOAD && late == AttemptTimeoutKind::UpstreamRead, "{late:?} after {taking:?}");
        let (sending, late) = wait_for_upload(|_| RequestBodyState::Awaited).await;
        assert!(sending >= UPLOAD && late == AttemptTimeoutKind::ClientUpload, "{late:?} after {sending:?}");
    }

    /// While the gateway sends bytes from its own buffers, the key is held for at most the sum of upload and response
    /// timeout.
    #[tokio::test]
    async fn buffered_upload_ends_in_time() {
        let over_at = |time| {
            move |now| {
                if now < Duration::from_millis(time) {
                    RequestBodyState::Awaited
                } else {
                    RequestBodyState::Complete
                }
            }
        };
        for time in [0, 700] {
            let (waited, late) = wait_for_upload(over_at(time)).await;
            assert!(
                waited >= UPLOAD + LIMIT && late == AttemptTimeoutKind::Response,
                "{late:?} after {waited:?}"
            );
        }
    }
}
