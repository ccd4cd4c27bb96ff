//! What a handler did, for the line that it leaves in the log.

/// What a handler did, in its own words, for the audit line.
#[derive(Debug, Clone)]
pub struct Did(pub String);
