//! The facts about one exchange with an upstream, for the steps around it, the log and the metrics.

use std::{
    cell::{Cell, Ref, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fencegate_http_client::upstream::{address::ResolvedEndpoint, gate::WriteGate};
use fencegate_policies::token::FencingToken;
use fencegate_process::clock::BootInstant;
use fencegate_refusal::RefusalReason;
use tokio::time::Instant;

/// An exchange with an upstream. The step that grants the right to send creates it, and reads it at the end; the
/// step `forward` writes it. The record of a new sending replaces that of the former one, which has written no byte
/// or was safe to repeat.
#[derive(Default)]
pub struct UpstreamExchange {
    attempt: RefCell<Option<UpstreamAttempt>>,
    answered_after: Cell<Option<Duration>>,
    answer: Cell<UpstreamResponseFlags>,
}

/// One attempt to send the request, over one connection.
pub struct UpstreamAttempt {
    pub began: Instant,
    /// The name of the upstream.
    pub upstream: Arc<str>,
    /// The gate of the connection.
    pub gate: Rc<WriteGate>,
    /// The address to which the connection leads.
    pub address: Arc<ResolvedEndpoint>,
    /// `None` for a request without a token.
    pub token: Option<FencingToken>,
    /// The moment after which the dispatch must not be started.
    pub not_after: Option<BootInstant>,
}

/// The facts that the head of an answer to a dispatch reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct UpstreamResponseFlags {
    /// True if the answer does not report that the execution is over, although it came in full: see
    /// [`fencegate_policies::plan::InconclusiveStatuses`].
    pub is_inconclusive: bool,
    /// True if the upstream has refused the token as stale: nothing more is dispatched under this grant.
    pub retires_grant: bool,
    /// The report of a guard.
    pub by_guard: Option<GuardAnswerFacts>,
}

/// The part of an earlier answer that is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseReplayExtent {
    Whole,
    WithoutBody,
}

/// The facts that a guard reports in its answer.
#[derive(Debug, Clone, Copy)]
pub struct GuardAnswerFacts {
    pub replayed: Option<ResponseReplayExtent>,
    /// The reason for which the guard would have refused, if it did more than observe.
    pub observed: Option<RefusalReason>,
}

impl UpstreamExchange {
    /// Records that the request is being sent, and forgets the former sending.
    pub(crate) fn begin(&self, attempt: UpstreamAttempt) {
        self.attempt.replace(Some(attempt));
        self.answered_after.set(None);
        self.answer.set(UpstreamResponseFlags::default());
    }

    /// Records that the head of an answer came, `after` the sending began.
    pub(crate) fn record_time_to_head(&self, after: Duration) {
        self.answered_after.set(Some(after));
    }

    /// Records the facts in the head of an answer to a dispatch.
    pub(crate) fn record_answer(&self, answer: UpstreamResponseFlags) {
        self.answer.set(answer);
    }

    /// The last sending; `None` if no connection was available.
    pub fn attempt(&self) -> Ref<'_, Option<UpstreamAttempt>> {
        self.attempt.borrow()
    }

    /// The token of the last sending.
    pub fn token(&self) -> Option<FencingToken> {
        self.attempt.borrow().as_ref()?.token
    }

    /// The time from the last sending to the head of the answer.
    pub fn time_to_response_head(&self) -> Option<Duration> {
        self.answered_after.get()
    }

    pub fn answer(&self) -> UpstreamResponseFlags {
        self.answer.get()
    }
}
