//! The options of `fencegate guard`.

/// The options of the verb.
#[derive(Debug, Clone)]
pub struct GuardOptions {
    /// Make the store; none may exist yet.
    pub init: Option<StoreInit>,
    pub workers: usize,
}

/// The beginning of a new store. `fencegate era show` prints both values.
#[derive(Debug, Clone)]
pub struct StoreInit {
    /// The guard lets in no token up to this epoch.
    pub floor: u64,
    /// The installation whose tokens the guard compares.
    pub ensemble: String,
}
