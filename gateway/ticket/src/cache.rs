//! Caches valid tickets, so that each text is verified once.

use std::{collections::HashMap, mem, sync::Arc};

use super::claims::VerifiedTicket;

/// SHA-256 of a ticket's text.
pub(super) type Digest = [u8; 32];

/// A valid ticket, and the key that verified it.
#[derive(Debug, Clone)]
pub(super) struct CachedTicket {
    pub(super) verified: Arc<VerifiedTicket>,
    pub(super) kid: Arc<str>,
    pub(super) thumbprint: [u8; 32],
}

/// Has two generations. When the young one is full, it becomes the old one, and the entries of the former old one are
/// forgotten; an entry that is used again moves to the young one. Only valid tickets come in, so an outsider cannot
/// evict them.
#[derive(Debug, Default)]
pub(super) struct TicketCache {
    young: HashMap<Digest, CachedTicket>,
    old: HashMap<Digest, CachedTicket>,
}

/// Entries of one generation: at about 500 bytes each, both take 4 MiB.
pub(super) const GENERATION: usize = 4096;

impl TicketCache {
    pub(super) fn get(&mut self, digest: &Digest) -> Option<CachedTicket> {
        if let Some(entry) = self.young.get(digest) {
            return Some(entry.clone());
        }
        let entry = self.old.remove(digest)?;
        self.insert(*digest, entry.clone());
        Some(entry)
    }

    pub(super) fn insert(&mut self, digest: Digest, entry: CachedTicket) {
        if self.young.len() >= GENERATION {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(digest, entry);
    }
}

#[cfg(test)]
mod tests {
    use fencegate_policies::{plan::LockMode, token::FencingToken};

    use super::*;
    use crate::TicketClaims;

    /// The cache is bounded, keeps the tickets in use, and drops the others.
    #[test]
    fn cache_is_bounded_keeps_used_tickets() {
        let tenure = FencingToken::new(1, 0, 0).expect("below 2^63");
        let verified = Arc::new(VerifiedTicket::new(
            TicketClaims::new(&[], tenure, LockMode::Shared, 0, "ours", "gateway-1"),
            0,
        ));
        let digest = |number: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_be_bytes());
            digest
        };
        let mut cache = TicketCache::default();
        let wanted = digest(usize::MAX);
        let entry = CachedTicket { verified, kid: "k".into(), thumbprint: [0; 32] };
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
