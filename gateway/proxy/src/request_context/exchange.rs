//! One exchange with an upstream, as far as the steps around it, the log and the metrics need it.

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

/// An exchange with an upstream. The step that gives the right to send makes it, and reads it at the end; `forward`
/// writes it. Each sending replaces the one before: nothing was written in that one, or it is safe to repeat.
#[derive(Default)]
pub struct UpstreamExchange {
    attempt: RefCell<Option<Attempt>>,
    answered_after: Cell<Option<Duration>>,
    answer: Cell<UpstreamResponseFlags>,
}

/// One sending over one connection.
pub struct Attempt {
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

/// What the head of an answer to a dispatch says.
#[derive(Debug, Clone, Copy, Default)]
pub struct UpstreamResponseFlags {
    /// The answer does not report that the execution is over, although it came in full: see
    /// [`fencegate_policies::plan::InconclusiveStatuses`].
    pub is_inconclusive: bool,
    /// The upstream has refused the token as stale: nothing more is dispatched under this grant.
    pub retires_grant: bool,
    /// The report of a guard.
    pub by_guard: Option<GuardAnswerFacts>,
}

/// How much of an earlier answer is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseReplayExtent {
    Whole,
    WithoutBody,
}

/// What the report of a guard says.
#[derive(Debug, Clone, Copy)]
pub struct GuardAnswerFacts {
    pub replayed: Option<ResponseReplayExtent>,
    /// The reason for which the guard would have refused, if it did more than observe.
    pub observed: Option<RefusalReason>,
}

impl UpstreamExchange {
    /// The request is being sent.
    pub(crate) fn begin(&self, attempt: Attempt) {
        self.attempt.replace(Some(attempt));
        self.answered_after.set(None);
        self.answer.set(UpstreamResponseFlags::default());
    }

    /// The head of an answer is here.
    pub(crate) fn record_time_to_head(&self, after: Duration) {
        self.answered_after.set(Some(after));
    }

    /// The head of an answer to a dispatch was understood.
    pub(crate) fn record_answer(&self, answer: UpstreamResponseFlags) {
        self.answer.set(answer);
    }

    /// The last sending; `None` if no connection was available.
    pub fn attempt(&self) -> Ref<'_, Option<Attempt>> {
        self.attempt.borrow()
    }

    /// The token of the last sending.
    pub fn token(&self) -> Option<FencingToken> {
        self.attempt.borrow().as_ref()?.token
    }

    /// The time from the last sending to the head of the answer.
    pub fn answered_after(&self) -> Option<Duration> {
        self.answered_after.get()
    }

    pub fn answer(&self) -> UpstreamResponseFlags {
        self.answer.get()
    }
}
