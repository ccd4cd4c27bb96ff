//! What an operator has done, for the audit line in the log.

/// What an operator had done, in the words of the log.
#[derive(Debug, Clone)]
pub struct AuditAction(pub String);
