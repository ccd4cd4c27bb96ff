//! Counts how many recorded operations each route and each client has in ZooKeeper, as far as this process has seen.
//!
//! An operation that this gateway admits counts at once. An operation that another gateway admits counts some
//! seconds later, when a sweep has seen it. So a quota may be exceeded a little; only the bound of all operations is
//! exact.

use std::collections::HashMap;

use fencegate_policies::plan::OperationQuota;
use serde::{Deserialize, Serialize};

use crate::error::AdmitOperationError;

/// The owner of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationQuotaOwner {
    pub route: String,
    /// A hash that stands for the principal; `None` if the route knows no principals.
    pub client: Option<String>,
}

/// The number of operations of each owner.
#[derive(Debug, Clone, Default)]
pub(super) struct OperationQuotaCounter {
    routes: HashMap<String, usize>,
    clients: HashMap<String, usize>,
}

impl OperationQuotaCounter {
    pub(super) fn add(&mut self, owner: &OperationQuotaOwner) {
        *self.routes.entry(owner.route.clone()).or_default() += 1;
        if let Some(client) = &owner.client {
            *self.clients.entry(client.clone()).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, owner: &OperationQuotaOwner) {
        let less = |counts: &mut HashMap<String, usize>, name: &str| {
            if let Some(count) = counts.get_mut(name) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    counts.remove(name);
                }
            }
        };
        less(&mut self.routes, &owner.route);
        if let Some(client) = &owner.client {
            less(&mut self.clients, client);
        }
    }

    /// Checks whether one more operation of the owner may be recorded.
    ///
    /// # Errors
    /// Returns an error if the owner has used up its quota.
    pub(super) fn check_quota(
        &self,
        owner: &OperationQuotaOwner,
        quota: OperationQuota,
    ) -> Result<(), AdmitOperationError> {
        let clients = owner.client.as_ref().zip(quota.client);
        if clients.is_some_and(|(client, most)| self.clients.get(client).is_some_and(|count| *count >= most))
        {
            return Err(AdmitOperationError::ClientFull);
        }
        if self.routes.get(&owner.route).is_some_and(|count| *count >= quota.route) {
            return Err(AdmitOperationError::RouteFull);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(route: &str, client: Option<&str>) -> OperationQuotaOwner {
        OperationQuotaOwner { route: route.into(), client: client.map(str::to_owned) }
    }

    /// A client has one quota across all routes, and a route one quota across all clients.
    #[test]
    fn quotas_apply_per_client_and_route() {
        let mut tally = OperationQuotaCounter::default();
        let quota = OperationQuota { route: 3, client: Some(2) };
        tally.add(&owner("pay", Some("a")));
        tally.add(&owner("refund", Some("a")));
        for route in ["pay", "refund", "other"] {
            assert_eq!(
                tally.check_quota(&owner(route, Some("a")), quota),
                Err(AdmitOperationError::ClientFull)
            );
            assert_eq!(tally.check_quota(&owner(route, Some("b")), quota), Ok(()));
        }
        tally.add(&owner("pay", Some("b")));
        tally.add(&owner("pay", None));
        assert_eq!(tally.check_quota(&owner("pay", Some("c")), quota), Err(AdmitOperationError::RouteFull));
        assert_eq!(tally.check_quota(&owner("pay", None), quota), Err(AdmitOperationError::RouteFull));
        assert_eq!(tally.check_quota(&owner("refund", None), quota), Ok(()));
        tally.remove(&owner("pay", Some("a")));
        assert_eq!(tally.check_quota(&owner("pay", Some("a")), quota), Ok(()));
        for gone in [owner("pay", Some("b")), owner("pay", None), owner("refund", Some("a"))] {
            tally.remove(&gone);
        }
        assert!(tally.routes.is_empty() && tally.clients.is_empty());
    }
}
