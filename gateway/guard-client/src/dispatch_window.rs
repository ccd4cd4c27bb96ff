//! The time in which execution of a dispatch may begin.

use std::time::Duration;

use fencegate_policies::not_after::NotAfter;

/// The time in which execution of a dispatch may begin.
#[derive(Debug, Clone, Copy)]
pub struct DispatchWindow {
    pub not_after: NotAfter,
    /// The length of the window.
    pub remaining: Duration,
    /// Whether the receiver verifies tickets, so that the ticket has to bound the time as well.
    pub is_signed: bool,
}
