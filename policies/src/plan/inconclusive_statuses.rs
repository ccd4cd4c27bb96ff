//! The statuses of an answer that do not prove that the execution is over.

/// Statuses that a proxy between us and the service answers in its own name while the service may still be at work.
/// An answer with one of them does not end an execution, even if it came in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InconclusiveStatuses(Vec<u16>);

impl InconclusiveStatuses {
    /// The answers of a gateway or proxy for a server behind it that it cannot reach, or that is too slow (RFC 9110,
    /// 15.6.3 and 15.6.5).
    pub const DEFAULT: [u16; 2] = [502, 504];

    pub fn new(mut statuses: Vec<u16>) -> Self {
        statuses.sort_unstable();
        statuses.dedup();
        Self(statuses)
    }

    pub fn contains(&self, status: u16) -> bool {
        self.0.contains(&status)
    }

    /// In ascending order, each of them once.
    pub fn statuses(&self) -> &[u16] {
        &self.0
    }
}

impl Default for InconclusiveStatuses {
    fn default() -> Self {
        Self(Self::DEFAULT.to_vec())
    }
}
