//! Starts callbacks: a request that a service sends while it works for another request runs inside the dispatch of
//! that request, or not at all.

use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};

use super::{call_chain::NestedCallbackError, grant_guard::GrantGuard, lock_manager::LockManager};

impl LockManager {
    /// Starts a callback inside the dispatch `from`, whose tenure has to hold exactly these keys in this gateway.
    /// Returns its tenure, and the mode in which the keys are held. Never waits.
    ///
    /// # Errors
    /// Returns an error if the callback cannot run inside that dispatch. The callback was not sent.
    pub fn start_callback(
        &self,
        keys: &[ResourceKey],
        from: FencingToken,
        mode: LockMode,
    ) -> Result<(GrantGuard, LockMode), NestedCallbackError> {
        let kept = match keys {
            [key] => self.table.start_callback(key, from, mode),
            _ => Err(NestedCallbackError::NotHeld),
        };
        match (kept, self.uncached_registry.find_lock(keys, from)) {
            (Err(NestedCallbackError::NotHeld), Some(lock)) => lock.start_callback(from, mode),
            (kept, _) => kept,
        }
    }
}
