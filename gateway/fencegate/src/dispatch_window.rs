//! The time in which a dispatch may be begun.

use std::time::Duration;

use fencegate_policies::not_after::NotAfter;

/// The time in which a dispatch may be begun.
#[derive(Debug, Clone, Copy)]
pub struct DispatchWindow {
    pub not_after: NotAfter,
    /// How long it is.
    pub remaining: Duration,
    /// Whether the receiver verifies tickets, so that the ticket has to bound the time as well.
    pub is_signed: bool,
}
