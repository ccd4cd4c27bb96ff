//! Whether an upstream leads to a service with fences that the file shows as another one.

#[cfg(test)]
mod tests;

use std::{collections::HashSet, time::Duration};

use fencegate_policies::plan::{Spot, UpstreamId};
use futures_util::future::{join, join_all};
use tokio::time::timeout;

use super::{Fleet, Fleets, Names};
use crate::upstream::spot::spot;

/// A request that waits for lookups keeps the next plan waiting, too.
const LONGEST: Duration = Duration::from_secs(1);

/// Where the endpoints of an upstream are.
enum Spots {
    All(HashSet<Spot>),
    /// A name was not looked up in time, or never found: it may lead anywhere.
    Unknown,
}

impl Fleets {
    /// Another upstream has an address of this one, and its service has fenced routes; or nobody knows that it has not.
    /// Takes no longer than a second: all first lookups are waited for at once, later ones not at all.
    pub async fn meets_fenced(&self, id: UpstreamId) -> bool {
        let fenced = || self.all.iter().filter(|fleet| fleet.upstream.service.is_fenced);
        if self.names == Names::AsWritten || fenced().next().is_none() {
            return false;
        }
        let (ours, theirs) =
            join(self.fleet(id).spots(), join_all(fenced().map(|fleet| fleet.spots()))).await;
        theirs.iter().any(|theirs| ours.may_meet(theirs))
    }
}

impl Fleet {
    async fn spots(&self) -> Spots {
        let lookups = join_all(self.endpoints.iter().map(|endpoint| endpoint.addresses.sockets()));
        let longest = self.upstream.connect_timeout.min(LONGEST);
        let found = timeout(longest, lookups).await.ok();
        let found: Option<Vec<_>> = found.and_then(|found| found.into_iter().collect());
        found.map_or(Spots::Unknown, |found| Spots::All(found.iter().flatten().map(spot).collect()))
    }
}

impl Spots {
    /// True where it cannot be ruled out. A request that could be read in two ways is refused then, which costs little.
    fn may_meet(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All(ours), Self::All(theirs)) => !ours.is_disjoint(theirs),
            (Self::Unknown, _) | (_, Self::Unknown) => true,
        }
    }
}
