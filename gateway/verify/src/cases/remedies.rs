//! Advice that several cases share.

/// The remedy for most failures.
pub(super) const UPSERT: &str = "raise one row per key by one statement, the first of the transaction that has the effect, and \
    refuse where it changes no row: `INSERT ... ON CONFLICT (key) DO UPDATE ... WHERE excluded.token > fence.token`";
