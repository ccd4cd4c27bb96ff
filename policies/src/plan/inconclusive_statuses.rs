//! The statuses of a response that do not prove that the execution is over.

/// The statuses with which a proxy between us and the service answers in its own name while the service may still be
/// at work. A response with one of them does not end an execution, even if it is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InconclusiveStatuses(Vec<u16>);

impl InconclusiveStatuses {
    /// The statuses of a gateway or proxy that cannot reach a server, or whose server is too slow (RFC 9110,
    /// sections 15.6.3 and 15.6.5).
    pub const DEFAULT: [u16; 2] = [502, 504];

    pub fn new(mut statuses: Vec<u16>) -> Self {
        statuses.sort_unstable();
        statuses.dedup();
        Self(statuses)
    }

    pub fn contains(&self, status: u16) -> bool {
        self.0.contains(&status)
    }

    /// The statuses in ascending order, each once.
    pub fn statuses(&self) -> &[u16] {
        &self.0
    }
}

impl Default for InconclusiveStatuses {
    fn default() -> Self {
        Self(Self::DEFAULT.to_vec())
    }
}
