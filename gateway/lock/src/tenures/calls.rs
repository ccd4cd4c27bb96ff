//! What a service calls back, from any thread: it runs inside the dispatch that has called it, or not at all.

use fencegate_policies::{key::ResourceKey, plan::Mode, token::Token};

use super::{chain::NotInside, keeper::Keeper, tenure::Tenure};

impl Keeper {
    /// Starts a request inside the dispatch `from` that has called it, whose tenure holds exactly these keys here; with how
    /// that holds them. It waits for nothing.
    ///
    /// # Errors
    /// It cannot run there. Nothing was dispatched.
    pub fn call(&self, keys: &[ResourceKey], from: Token, mode: Mode) -> Result<(Tenure, Mode), NotInside> {
        let kept = match keys {
            [key] => self.table.call(key, from, mode),
            _ => Err(NotInside::NotHere),
        };
        match (kept, self.roll.holder(keys, from)) {
            (Err(NotInside::NotHere), Some(lock)) => lock.call(from, mode),
            (kept, _) => kept,
        }
    }
}
