//! The results of acquires, of forwarding, of exchanges and of reloads. Each result is the value of a label, so that
//! all series can be created before the first result is counted.

use std::time::Duration;

use fencegate_lock::manager::lock_manager::AcquireError;
use fencegate_policies::plan::LockMode;
use fencegate_refusal::{RefusalReason, RefusalSourceError};
use hyper::StatusCode;
use serde::{Deserialize, Serialize};

/// The modes in the order of their discriminants, which are indexes into arrays by mode.
pub(super) const MODES: [LockMode; 2] = [LockMode::Exclusive, LockMode::Shared];

/// The reasons for which an exchange with an upstream had no answer, as labels.
pub(super) const UPSTREAM_ERRORS: [&str; 7] =
    ["connect", "full", "timeout", "proof", "protocol", "unsent", "broken"];

/// The result of an acquire.
pub enum AcquireLabel<'a> {
    /// This gateway held the lock already, and the lock was free.
    Warm,
    Immediate,
    Waited,
    /// The request is a callback inside a dispatch that has the lock.
    Nested,
    /// An earlier request of this gateway handed the lock over.
    HandedOver,
    ClientGone,
    Refused(&'a AcquireError),
}

impl AcquireLabel<'_> {
    /// The labels for the result, and for whether another holder was ahead.
    pub(super) fn result_and_contended(&self) -> (&'static str, &'static str) {
        match self {
            Self::Warm => ("warm", "no"),
            Self::Nested => ("inside", "no"),
            Self::Immediate => ("granted", "no"),
            Self::Waited | Self::HandedOver => ("granted", "yes"),
            Self::ClientGone => ("client-gone", "yes"),
            Self::Refused(AcquireError::Elsewhere(_)) => SENT_ON,
            // Without an installation ZooKeeper grants no lock, as without a lock service, so both have one label.
            Self::Refused(AcquireError::NotInitialised(_)) => (RefusalReason::LockService.word(), "no"),
            Self::Refused(refused) => {
                let contended = if refused.is_held_elsewhere() { "yes" } else { "no" };
                (RefusalReason::from(RefusalSourceError::Lock(refused)).word(), contended)
            }
        }
    }
}

/// The labels for a request that was forwarded to the gateway that holds the key.
const SENT_ON: (&str, &str) = ("forwarded", "yes");

/// All label values of acquires: mode, and result with contention.
pub(super) fn acquire_labels() -> impl Iterator<Item = (&'static str, (&'static str, &'static str))> {
    let refused = [
        AcquireError::Locked,
        AcquireError::QueueFull,
        AcquireError::Delayed(Duration::ZERO),
        AcquireError::NotHolder,
        AcquireError::PermitsDiffer,
        AcquireError::KeyLimit(""),
        AcquireError::PlaceTaken(""),
        AcquireError::Service(String::new()),
        AcquireError::RolledBack(String::new()),
    ];
    let refused = refused
        .map(|refused| AcquireLabel::Refused(&refused).result_and_contended())
        .into_iter()
        .chain([SENT_ON]);
    let others = [
        AcquireLabel::Warm,
        AcquireLabel::Nested,
        AcquireLabel::Immediate,
        AcquireLabel::Waited,
        AcquireLabel::ClientGone,
    ];
    let words = others.map(|result| result.result_and_contended()).into_iter().chain(refused);
    words.flat_map(|words| MODES.map(|mode| (mode.as_str(), words)))
}

/// The result of forwarding a request to the gateway that holds its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerForwardLabel {
    /// The answer of that gateway was passed on to the client.
    Answered,
    /// Nothing was dispatched there, and the request queued here.
    Requeued,
    /// The client left while the other gateway had the request.
    ClientGone,
    /// The outcome is unknown.
    Unknown,
}

impl PeerForwardLabel {
    pub(super) const ALL: [Self; 4] = [Self::Answered, Self::Requeued, Self::ClientGone, Self::Unknown];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Requeued => "back",
            Self::ClientGone => "gone",
            Self::Unknown => "unknown",
        }
    }
}

/// The result of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Reloaded))]
pub enum ReloadResult {
    Applied,
    /// The file means the same as the plan in force.
    Unchanged,
    Refused,
    /// A dry run: nothing was to be changed.
    Dry,
}

impl ReloadResult {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
            Self::Dry => "dry",
        }
    }
}

/// The class of a status. An upstream may answer any number from 100 to 999, and the number of series must stay
/// bounded.
pub(super) fn status_class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "other",
    }
}
