//! Determines whether an upstream reaches a service that the policy protects under the name of another upstream.

#[cfg(test)]
mod tests;

use std::{collections::HashSet, time::Duration};

use fencegate_policies::plan::{CanonicalAddress, UpstreamId};
use futures_util::future::{join, join_all};
use tokio::time::timeout;

use super::{EndpointSet, NameResolutionMode, UpstreamSet};
use crate::upstream::same_listener::canonical_address;

/// The longest wait for lookups. It is short, because a waiting request also delays the next plan.
const LONGEST: Duration = Duration::from_secs(1);

/// The addresses of an upstream's endpoints.
enum KnownAddresses {
    All(HashSet<CanonicalAddress>),
    /// A name was not looked up in time, or never found, so it may lead to any address.
    Unknown,
}

impl UpstreamSet {
    /// True if an upstream of a protected service shares an address with this one, or may share one. Takes at most a
    /// second: it waits for all first lookups at the same time, and for no later ones.
    pub async fn overlaps_protected(&self, id: UpstreamId) -> bool {
        let protected = || self.all.iter().filter(|endpoint_set| endpoint_set.upstream.service.is_protected);
        if self.names == NameResolutionMode::Literal || protected().next().is_none() {
            return false;
        }
        let (ours, theirs) = join(
            self.get(id).known_addresses(),
            join_all(protected().map(|endpoint_set| endpoint_set.known_addresses())),
        )
        .await;
        theirs.iter().any(|theirs| ours.may_overlap(theirs))
    }
}

impl EndpointSet {
    async fn known_addresses(&self) -> KnownAddresses {
        let lookups =
            join_all(self.endpoints.iter().map(|endpoint| endpoint.addresses.known_and_recent_targets()));
        let longest = self.upstream.connect_timeout.min(LONGEST);
        let found = timeout(longest, lookups).await.ok();
        let found: Option<Vec<_>> = found.and_then(|found| found.into_iter().collect());
        found.map_or(KnownAddresses::Unknown, |found| {
            KnownAddresses::All(found.iter().flatten().map(canonical_address).collect())
        })
    }
}

impl KnownAddresses {
    /// True if both may share an address, also if that cannot be ruled out. The only effect is that ambiguous requests
    /// are refused.
    fn may_overlap(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All(ours), Self::All(theirs)) => !ours.is_disjoint(theirs),
            (Self::Unknown, _) | (_, Self::Unknown) => true,
        }
    }
}
