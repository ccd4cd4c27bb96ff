//! Which key an operator means, who sees keys as the policy lets its log call them.

use std::collections::BTreeSet;

use fencegate_lock::manager::listing::ListFilter;
use fencegate_policies::{key::ResourceKey, plan::KeyVisibility};
use fencegate_process::key_redaction::{hash_key, is_key_hash};

use super::{
    error::{ApiError, ApiErrorCode},
    state::GatewayState,
};

impl GatewayState {
    /// The key that an operator means: by its own name, which whoever knows it may say, or by its number. That is also found where
    /// nobody locks the key now, for as long as a request or a lease of it is told of.
    ///
    /// # Errors
    /// `changed` for a number that no key here has, or two have: clients choose what keys are called, and who looks for
    /// it finds two with one number.
    pub(super) fn resolve_key(&self, text: &str) -> Result<ResourceKey, ApiError> {
        if self.names().0 != KeyVisibility::Hash || !is_key_hash(text) {
            return ResourceKey::parse_user_input(text).or_else(|bad| {
                // Other programs may hold what no request asks for.
                let known = self.known_keys(|key| key.as_str() == text).pop_first();
                known.ok_or_else(|| ApiError::new(ApiErrorCode::Malformed, bad.to_string()))
            });
        }
        require_unique(self.known_keys(|key| hash_key(key) == text))
    }

    /// The key behind which a list goes on. What no request asks for has a place in it as well.
    ///
    /// # Errors
    /// As [`Self::resolve_key`].
    pub(super) fn list_position(&self, text: &str) -> Result<ResourceKey, ApiError> {
        if self.names().0 == KeyVisibility::Hash && is_key_hash(text) {
            return self.resolve_key(text);
        }
        ResourceKey::parse(text).map_err(|bad| ApiError::new(ApiErrorCode::Malformed, bad.to_string()))
    }

    /// The keys of locks, leases and requests that are `wanted`.
    fn known_keys(&self, wanted: impl Fn(&ResourceKey) -> bool + Copy) -> BTreeSet<ResourceKey> {
        let locks = self.keeper.list_locks(ListFilter { limit: usize::MAX, ..ListFilter::default() }).locks;
        let locked = locks.into_iter().map(|lock| lock.key).filter(wanted);
        let leased = self.leases.iter().flat_map(|leases| leases.keys(wanted));
        locked.chain(self.requests.keys(wanted)).chain(leased).collect()
    }
}

/// Of the keys that have one number.
fn require_unique(keys: BTreeSet<ResourceKey>) -> Result<ResourceKey, ApiError> {
    let changed = |said| ApiError::new(ApiErrorCode::Changed, said);
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

    #[test]
    fn a_number_means_one_key_or_none() {
        let key = |text| ResourceKey::parse(text).expect("a key");
        let number = hash_key(&key("a"));
        assert!(
            is_key_hash(&number) && !is_key_hash("#0123456789abcdeg") && !is_key_hash("0123456789abcdef")
        );
        let meant = |keys: &[&'static str]| require_unique(keys.iter().map(|text| key(text)).collect());
        assert_eq!(meant(&["a", "a"]).expect("it is there"), key("a"));
        for keys in [&[][..], &["a", "b"]] {
            assert_eq!(meant(keys).map_err(|fault| fault.code), Err(ApiErrorCode::Changed), "{keys:?}");
        }
    }
}
