//! The language of cases: a request, its token, and the expected result.

use super::stamp::{Mint, Stamp};

/// One request of a case, or an accident.
#[derive(Debug, Clone, Copy)]
pub struct Action {
    pub act: Act,
    pub who: Who,
    pub stamp: Stamp,
    pub at: At,
    pub expect: Expect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Write,
    /// The write before it again, byte by byte.
    Repeat,
    /// A write of another kind, about the same key.
    Also,
    /// A read under a shared lock.
    Read,
    /// The question what became of the operation.
    Question,
    /// A pause, as long as the service claims to remember marks.
    Wait,
    /// The service ends and starts again.
    Crash,
}

/// The keys that a request is about, by their place in the case. Each case has keys of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    One(usize),
    /// Both keys, in this order, if the request names two.
    Both(usize, usize),
}

/// The instance to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    First,
    Second,
}

/// The expected result of a request or a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// It is let in. The case is about the requests after it.
    Ready,
    /// It is let in and has one effect.
    Accepted,
    /// 412, `Fencing-Refusal: stale`, and no effect.
    Stale,
    /// 412, `Fencing-Refusal: expired`, and no effect.
    Expired,
    /// Any 4xx, and no effect.
    Refused,
    /// Stale for a service that compares tokens, let in by one that compares numbers: all numbers of a tenure are
    /// equal.
    SameTenure,
    /// Stale, or the former answer without a second effect.
    NotAgain,
    /// The answer to a question: it was done.
    Done,
    /// The answer to a question: it was not done.
    NotDone,
}

/// The places of keys.
pub const A: usize = 0;
pub const B: usize = 1;
pub const C: usize = 2;
pub const D: usize = 3;

pub const fn write(mint: Mint) -> Action {
    stamped(Stamp::Whole(mint))
}

pub const fn read(mint: Mint) -> Action {
    Action { act: Act::Read, ..write(mint) }
}

pub const fn also(mint: Mint) -> Action {
    Action { act: Act::Also, ..write(mint) }
}

pub const fn stamped(stamp: Stamp) -> Action {
    Action { act: Act::Write, who: Who::One(A), stamp, at: At::First, expect: Expect::Ready }
}

pub const fn repeat(mint: Mint) -> Action {
    Action { act: Act::Repeat, ..write(mint) }
}

pub const fn question(mint: Mint) -> Action {
    Action { act: Act::Question, ..write(mint) }
}

pub const fn crash() -> Action {
    Action { act: Act::Crash, ..stamped(Stamp::Absent) }
}

pub const fn wait() -> Action {
    Action { act: Act::Wait, ..stamped(Stamp::Absent) }
}

impl Action {
    #[must_use]
    pub const fn on(self, key: usize) -> Self {
        Self { who: Who::One(key), ..self }
    }

    #[must_use]
    pub const fn both(self, key: usize, other: usize) -> Self {
        Self { who: Who::Both(key, other), ..self }
    }

    #[must_use]
    pub const fn elsewhere(self) -> Self {
        Self { at: At::Second, ..self }
    }

    #[must_use]
    pub const fn is(self, expect: Expect) -> Self {
        Self { expect, ..self }
    }
}
