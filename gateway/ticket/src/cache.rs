//! Caches valid tokens, so that each text is verified once.

use std::{collections::HashMap, mem, sync::Arc};

use aws_lc_rs::digest::{SHA256, digest};

/// SHA-256 of a token's text.
pub(super) type Digest = [u8; 32];

/// A valid token, and the key that verified it.
#[derive(Debug)]
pub(super) struct CachedToken<T> {
    pub(super) verified: Arc<T>,
    pub(super) thumbprint: [u8; 32],
}

/// A cache of two generations. When the young generation is full, it becomes the old one, and the entries of the
/// former old one are dropped; an entry that is used again moves to the young one. Only valid tokens are inserted, so
/// an outsider cannot evict them.
#[derive(Debug)]
pub(super) struct VerifiedTokenCache<T> {
    young: HashMap<Digest, CachedToken<T>>,
    old: HashMap<Digest, CachedToken<T>>,
}

/// The most entries of one generation: at about 500 bytes each, both generations take 4 MiB.
pub(super) const GENERATION: usize = 4096;

pub(super) fn token_digest(token: &[u8]) -> Digest {
    digest(&SHA256, token).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl<T> VerifiedTokenCache<T> {
    pub(super) fn get(&mut self, digest: &Digest) -> Option<CachedToken<T>> {
        if let Some(entry) = self.young.get(digest) {
            return Some(entry.clone());
        }
        let entry = self.old.remove(digest)?;
        self.insert(*digest, entry.clone());
        Some(entry)
    }

    pub(super) fn insert(&mut self, digest: Digest, entry: CachedToken<T>) {
        if self.young.len() >= GENERATION {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(digest, entry);
    }
}

impl<T> Default for VerifiedTokenCache<T> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<T> Clone for CachedToken<T> {
    fn clone(&self) -> Self {
        Self { verified: Arc::clone(&self.verified), thumbprint: self.thumbprint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cache is bounded, keeps the tokens that are used, and drops the others.
    #[test]
    fn cache_is_bounded_keeps_used_tokens() {
        let digest = |number: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_be_bytes());
            digest
        };
        let mut cache = VerifiedTokenCache::default();
        let wanted = digest(usize::MAX);
        let entry = CachedToken { verified: Arc::new(()), thumbprint: [0; 32] };
        cache.insert(wanted, entry.clone());
        for number in 0..5 * GENERATION {
            cache.insert(digest(number), entry.clone());
            assert!(cache.young.len() <= GENERATION && cache.old.len() <= GENERATION);
            if number % (GENERATION / 2) == 0 {
                assert!(cache.get(&wanted).is_some(), "after {number}");
            }
        }
        assert!(cache.get(&digest(0)).is_none(), "nobody asked for it");
    }
}
