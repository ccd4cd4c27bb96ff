//! The action of an operator, for the audit line in the log.

/// The action of an operator, as the log shows it.
#[derive(Debug, Clone)]
pub struct AuditAction(pub String);
