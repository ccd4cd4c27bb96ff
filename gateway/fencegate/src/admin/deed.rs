//! What an operator had done, for the line that it leaves in the log.

/// What an operator had done, in the words of the log.
#[derive(Debug, Clone)]
pub struct Deed(pub String);
