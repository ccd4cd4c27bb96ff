//! What can come of asking for a lock, of sending a request on, of an exchange, and of reading the file again: each a
//! word of a label, so that all of them are known before one is counted.

use std::time::Duration;

use fencegate_lock::tenures::keeper::Refused;
use fencegate_policies::plan::Mode;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};

use crate::refusal::{Below, Reason};

/// In the order of their discriminants.
pub(super) const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

/// Why an exchange with an upstream had no answer.
pub(super) const UPSTREAM_ERRORS: [&str; 7] =
    ["connect", "full", "timeout", "proof", "protocol", "unsent", "broken"];

/// What came of asking for a lock.
pub enum Acquired<'a> {
    /// Held by this gateway, and free.
    Warm,
    AtOnce,
    Waited,
    /// Called from a dispatch that has it.
    Inside,
    /// From a request of this gateway that was before.
    HandedOn,
    ClientGone,
    Refused(&'a Refused),
}

impl Acquired<'_> {
    /// What came of it, and whether another holder was before us.
    pub(super) fn words(&self) -> (&'static str, &'static str) {
        match self {
            Self::Warm => ("warm", "no"),
            Self::Inside => ("inside", "no"),
            Self::AtOnce => ("granted", "no"),
            Self::Waited | Self::HandedOn => ("granted", "yes"),
            Self::ClientGone => ("client-gone", "yes"),
            Self::Refused(Refused::Elsewhere(_)) => SENT_ON,
            // There is no lock to be had from ZooKeeper, either way.
            Self::Refused(Refused::NotInitialised(_)) => (Reason::LockService.word(), "no"),
            Self::Refused(refused) => {
                let contended = if refused.is_for_another_holder() { "yes" } else { "no" };
                (Reason::from(Below::Lock(refused)).word(), contended)
            }
        }
    }
}

/// Another gateway keeps the key, and is asked instead.
const SENT_ON: (&str, &str) = ("forwarded", "yes");

/// All that can be counted of asking for locks: mode, and what came of it.
pub(super) fn acquisitions() -> impl Iterator<Item = (&'static str, (&'static str, &'static str))> {
    let refused = [
        Refused::Locked,
        Refused::QueueFull,
        Refused::Delayed(Duration::ZERO),
        Refused::NotHolder,
        Refused::PermitsDiffer,
        Refused::KeyLimit(""),
        Refused::Service(String::new()),
        Refused::RolledBack(String::new()),
    ];
    let refused = refused.map(|refused| Acquired::Refused(&refused).words()).into_iter().chain([SENT_ON]);
    let others = [Acquired::Warm, Acquired::Inside, Acquired::AtOnce, Acquired::Waited, Acquired::ClientGone];
    let words = others.map(|result| result.words()).into_iter().chain(refused);
    words.flat_map(|words| MODES.map(|mode| (mode.word(), words)))
}

/// What came of sending a request on to the gateway that keeps its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarding {
    /// That gateway's answer was passed on.
    Answered,
    /// Nothing was dispatched, and it queued here.
    Back,
    /// Its client went away while the other gateway had it.
    Gone,
    /// Nobody knows what came of it.
    Unknown,
}

impl Forwarding {
    pub(super) const ALL: [Self; 4] = [Self::Answered, Self::Back, Self::Gone, Self::Unknown];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Back => "back",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
        }
    }
}

/// What came of reading the file again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Reloaded {
    Applied,
    /// It means what the plan in force means.
    Unchanged,
    Refused,
    /// Nothing was to be changed.
    Dry,
}

impl Reloaded {
    pub fn word(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
            Self::Dry => "dry",
        }
    }
}

/// An upstream may answer any number from 100 to 999; the class of it cannot make series without bound.
pub(super) fn class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "other",
    }
}
