//! What is told of requests.

/// What is written beside the process's own log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Log {
    pub access: Access,
    pub keys: KeysShown,
}

/// Where the line per request goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    #[default]
    Off,
    Stdout,
}

/// How resource keys stand in the access log. They may be names of accounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeysShown {
    #[default]
    Plain,
    /// The same number for the same keys, 16 hex digits. No secret: who can guess a key finds its number.
    Hash,
    Off,
}
