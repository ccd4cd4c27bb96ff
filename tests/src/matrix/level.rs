//! How late requests are kept out in one run of a case, and the times that all processes are configured with.

use std::time::Duration;

use crate::origin::AccountIsolation;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixLevel {
    /// By nothing: as with every lock without a fence.
    None,
    /// By time: the next holder after one that left without a record waits until the requests of that one are over.
    Delay,
    /// The service, in the transaction of the effect.
    Upstream,
    /// A guard beside a service that compares nothing.
    Guard,
}

/// Longer than a session of 2 s and two ticks: another gateway gets the key meanwhile. Shorter than any client waits for
/// the answer.
pub const LONG: Duration = Duration::from_millis(3600);

/// So long a guard waits for the service.
pub const RESPONSE: Duration = Duration::from_secs(4);

/// Whatever a guard has let in is over by then.
pub const MAX_EXECUTION: Duration = Duration::from_secs(5);

impl MatrixLevel {
    /// As policies spell it.
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

    /// Tokens are compared at this level.
    pub const fn compares(self) -> bool {
        matches!(self, Self::Upstream | Self::Guard)
    }
}
