//! Resolves the key that an operator means. Operators see keys in the form in which the policy logs them.

use std::collections::BTreeSet;

use fencegate_lock::manager::listing::LockListFilter;
use fencegate_policies::{key::ResourceKey, plan::KeyVisibility};
use fencegate_process::key_redaction::{hash_key, is_key_hash};

use super::{
    error::{AdminErrorCode, AdminRefusal},
    state::GatewayAdminState,
};

impl GatewayAdminState {
    /// The key that an operator means: by its own name, which any caller that has it may use, or by its hash. A hash
    /// also resolves to a key that nobody locks now, as long as a request or a lease of the key is remembered.
    ///
    /// # Errors
    /// Returns `changed` for a hash that no key here has, or that two keys have: clients choose the names of
    /// keys, and a client that searches for a collision finds one.
    pub(super) fn resolve_key(&self, text: &str) -> Result<ResourceKey, AdminRefusal> {
        if self.key_redaction().0 != KeyVisibility::Hash || !is_key_hash(text) {
            return ResourceKey::parse_user_input(text).or_else(|bad| {
                // The key may be one that no request wants, because other programs may hold it.
                let known = self.known_keys(|key| key.as_str() == text).pop_first();
                known.ok_or_else(|| AdminRefusal::new(AdminErrorCode::Malformed, bad.to_string()))
            });
        }
        require_unique(self.known_keys(|key| hash_key(key) == text))
    }

    /// The key after which a list continues. A key that no request wants has a position in the list, too.
    ///
    /// # Errors
    /// Returns an error as [`Self::resolve_key`] does.
    pub(super) fn parse_list_cursor(&self, text: &str) -> Result<ResourceKey, AdminRefusal> {
        if self.key_redaction().0 == KeyVisibility::Hash && is_key_hash(text) {
            return self.resolve_key(text);
        }
        ResourceKey::parse(text).map_err(|bad| AdminRefusal::new(AdminErrorCode::Malformed, bad.to_string()))
    }

    /// The keys of locks, leases and requests that are `wanted`.
    fn known_keys(&self, wanted: impl Fn(&ResourceKey) -> bool + Copy) -> BTreeSet<ResourceKey> {
        let locks =
            self.locks.list_locks(LockListFilter { limit: usize::MAX, ..LockListFilter::default() }).locks;
        let locked = locks.into_iter().map(|lock| lock.key).filter(wanted);
        let leased = self.leases.iter().flat_map(|leases| leases.remembered_keys(wanted));
        locked.chain(self.requests.keys(wanted)).chain(leased).collect()
    }
}

/// Requires that exactly one key has the hash.
fn require_unique(keys: BTreeSet<ResourceKey>) -> Result<ResourceKey, AdminRefusal> {
    let changed = |said| AdminRefusal::new(AdminErrorCode::Changed, said);
    let mut keys = keys.into_iter();
    let only = keys.next().ok_or_else(|| changed("no key here has that number any more; look again"))?;
    match keys.next() {
        None => Ok(only),
        Some(_) => Err(changed("two keys here have that number; say the key itself")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key hash resolves to the only key that has it; with none or several keys the result is `Changed`.
    #[test]
    fn hash_resolves_to_unique_key() {
        let key = |text| ResourceKey::parse(text).expect("a key");
        let number = hash_key(&key("a"));
        assert!(
            is_key_hash(&number) && !is_key_hash("#0123456789abcdeg") && !is_key_hash("0123456789abcdef")
        );
        let meant = |keys: &[&'static str]| require_unique(keys.iter().map(|text| key(text)).collect());
        assert_eq!(meant(&["a", "a"]).expect("it is there"), key("a"));
        for keys in [&[][..], &["a", "b"]] {
            assert_eq!(meant(keys).map_err(|fault| fault.code), Err(AdminErrorCode::Changed), "{keys:?}");
        }
    }
}
