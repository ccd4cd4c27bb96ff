//! What a request asks of the keeper: which keys, how, and for how long it would wait.

use std::{sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    plan::{Hold, Mode},
};

/// What a request wants.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// Sorted, without doubles, at least one.
    pub keys: &'a [ResourceKey],
    pub mode: Mode,
    pub hold: Hold,
    /// Zero: only if it is free now.
    pub wait: Duration,
    /// Requests of this gateway that may wait behind the holder.
    pub queue: usize,
    /// Where it waits: counts for a single key that is kept for others.
    pub waits: Waits,
    /// Who asks, for whoever looks.
    pub route: &'a Arc<str>,
}

/// Where a request may wait for a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Waits {
    #[default]
    Here,
    /// Here, or at the gateway that keeps the key, which it may be sent on to.
    Anywhere,
    /// Only where the key is kept: another gateway has sent it here.
    AtHolder,
}
