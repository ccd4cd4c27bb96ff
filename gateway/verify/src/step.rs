//! The language of cases: a request, its token, and the expected result.

use super::token_headers::{SyntheticToken, SyntheticTokenHeaders};

/// One request of a case, or an incident.
#[derive(Debug, Clone, Copy)]
pub struct CaseStep {
    pub act: CaseStepKind,
    pub who: CaseStepKeys,
    pub stamp: SyntheticTokenHeaders,
    pub at: TestedInstance,
    pub expect: ExpectedResult,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseStepKind {
    Write,
    /// The previous write again, byte by byte.
    Repeat,
    /// A write of another kind, about the same key.
    WriteOther,
    /// A read under a shared lock.
    Read,
    /// The probe for the outcome of the operation.
    Question,
    /// A pause, as long as the service claims to store watermarks.
    Wait,
    /// The service ends and starts again.
    Crash,
}

/// The keys that a request is about, by their place in the case. Each case has keys of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseStepKeys {
    One(usize),
    /// Both keys, in this order, if the request names two.
    Both(usize, usize),
}

/// The instance to which the request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestedInstance {
    First,
    Second,
}

/// The expected result of a request or a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedResult {
    /// The request is accepted. It only prepares the requests that the case is about.
    Ready,
    /// The request is accepted and has one effect.
    Accepted,
    /// 412, `Fencing-Refusal: stale`, and no effect.
    Stale,
    /// 412, `Fencing-Refusal: expired`, and no effect.
    Expired,
    /// Any 4xx, and no effect.
    Refused,
    /// Stale for a service that compares tokens, accepted by one that compares numbers: all numbers of a tenure are
    /// equal.
    SameTenure,
    /// Stale, or the former answer without a second effect.
    NotAgain,
    /// The probe answers that the operation was done.
    Done,
    /// The probe answers that the operation was not done.
    NotDone,
}

/// The indices of keys.
pub const A: usize = 0;
pub const B: usize = 1;
pub const C: usize = 2;
pub const D: usize = 3;

pub const fn write(mint: SyntheticToken) -> CaseStep {
    with_headers(SyntheticTokenHeaders::Whole(mint))
}

pub const fn read(mint: SyntheticToken) -> CaseStep {
    CaseStep { act: CaseStepKind::Read, ..write(mint) }
}

pub(crate) const fn write_other(mint: SyntheticToken) -> CaseStep {
    CaseStep { act: CaseStepKind::WriteOther, ..write(mint) }
}

pub(crate) const fn with_headers(stamp: SyntheticTokenHeaders) -> CaseStep {
    CaseStep {
        act: CaseStepKind::Write,
        who: CaseStepKeys::One(A),
        stamp,
        at: TestedInstance::First,
        expect: ExpectedResult::Ready,
    }
}

pub const fn repeat(mint: SyntheticToken) -> CaseStep {
    CaseStep { act: CaseStepKind::Repeat, ..write(mint) }
}

pub const fn probe(mint: SyntheticToken) -> CaseStep {
    CaseStep { act: CaseStepKind::Question, ..write(mint) }
}

pub const fn crash() -> CaseStep {
    CaseStep { act: CaseStepKind::Crash, ..with_headers(SyntheticTokenHeaders::Absent) }
}

pub const fn wait() -> CaseStep {
    CaseStep { act: CaseStepKind::Wait, ..with_headers(SyntheticTokenHeaders::Absent) }
}

impl CaseStep {
    #[must_use]
    pub(crate) const fn on_key(self, key: usize) -> Self {
        Self { who: CaseStepKeys::One(key), ..self }
    }

    #[must_use]
    pub(crate) const fn on_both(self, key: usize, other: usize) -> Self {
        Self { who: CaseStepKeys::Both(key, other), ..self }
    }

    #[must_use]
    pub(crate) const fn on_second_instance(self) -> Self {
        Self { at: TestedInstance::Second, ..self }
    }

    #[must_use]
    pub const fn expect(self, expect: ExpectedResult) -> Self {
        Self { expect, ..self }
    }
}
