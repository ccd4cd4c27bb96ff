//! The language of cases: a request, its token, and what has to come of it.

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
    /// The write before it once more, byte by byte.
    Repeat,
    /// A write of another kind, about the same key.
    Also,
    /// A request of a tenure that readers share.
    Read,
    /// Nothing, for as long as marks are claimed to be remembered.
    Wait,
    /// The service is ended and started.
    Crash,
}

/// The keys that a request is about, by their place in the case. Each case has keys of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    One(usize),
    /// Where the request names two, in this order.
    Both(usize, usize),
}

/// Which instance is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    First,
    Second,
}

/// What has to come of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// It is let in; the case is about what follows.
    Ready,
    /// It is let in, and has its effect once.
    Accepted,
    /// 412, `Fencing-Refusal: stale`, and no effect.
    Stale,
    /// Any 4xx, and no effect.
    Refused,
    /// Stale to who compares tokens, let in by who compares numbers: these are equal within a tenure.
    SameTenure,
    /// Stale; or answered as before, without a second effect.
    NotAgain,
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
