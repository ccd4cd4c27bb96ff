//! The protection against late requests in one run of a case, and the times that all processes are configured with.

use std::time::Duration;

use crate::origin::AccountIsolation;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestedFencingLevel {
    /// No protection, as with every lock without fencing.
    None,
    /// Time: after a holder that left no final record, the next holder waits until the former one's requests are
    /// over.
    Delay,
    /// The service compares tokens, in the transaction of the effect.
    Upstream,
    /// A guard before a service that compares nothing.
    Guard,
}

/// The duration of a long execution: longer than a session of 2 s and two ticks, so that another gateway gets the
/// key meanwhile, and shorter than any client waits for the response.
pub const LONG: Duration = Duration::from_millis(3600);

/// The time that a guard waits for the service's response.
pub const RESPONSE: Duration = Duration::from_secs(4);

/// The time within which every admitted request is over.
pub const MAX_EXECUTION: Duration = Duration::from_secs(5);

impl TestedFencingLevel {
    /// The name of the level in policies.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Delay => "delay",
            Self::Upstream => "upstream",
            Self::Guard => "guard",
        }
    }

    pub const fn rule(self) -> AccountIsolation {
        match self {
            Self::None | Self::Delay | Self::Guard => AccountIsolation::Trusting,
            Self::Upstream => AccountIsolation::Comparing,
        }
    }

    /// True if tokens are compared at this level.
    pub const fn compares(self) -> bool {
        matches!(self, Self::Upstream | Self::Guard)
    }
}
