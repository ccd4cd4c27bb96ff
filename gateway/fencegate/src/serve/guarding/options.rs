//! What `fencegate guard` is told beside its file.

/// The options of the verb.
#[derive(Debug, Clone)]
pub struct GuardOptions {
    /// Make the store; it must not be there yet.
    pub init: Option<Init>,
    pub workers: usize,
}

/// Where a new store begins; `fencegate era show` prints both.
#[derive(Debug, Clone)]
pub struct Init {
    /// No token up to here passes.
    pub floor: u64,
    /// The installation whose tokens are compared.
    pub ensemble: String,
}
