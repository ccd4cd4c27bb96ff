//! Which requests are operations that happen at most once.

use std::time::Duration;

use crate::key::KeyTemplate;

/// `once` of a fence.
#[derive(Debug, Clone)]
pub struct Once {
    pub store: OnceStore,
    /// What names the operation. Default `{header.idempotency-key}`.
    pub key: KeyTemplate,
    /// Whose operation it is: two principals may use one name for two operations. Default nobody's.
    pub principal: Option<KeyTemplate>,
    /// Requests without a name are refused; else they run unrecorded. Default refused.
    pub required: bool,
    /// How long a finished operation is remembered. Default 24 h.
    pub keep: Duration,
}

/// Who remembers operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnceStore {
    /// The guard: an answer can be replayed.
    Guard,
    /// ZooKeeper, for upstreams without a guard: at most one dispatch, no answer is kept.
    ZooKeeper,
}
