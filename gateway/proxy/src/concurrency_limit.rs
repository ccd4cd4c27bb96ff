//! Counts the requests that one worker has in flight.

use std::{
    cell::{Cell, OnceCell},
    rc::Rc,
};

use fencegate_http::client_quota::ClientQuotaPermit;

/// Limits the number of requests that one worker has in flight.
#[derive(Debug, Clone)]
pub struct ConcurrencyLimit {
    count: Rc<Cell<usize>>,
    limit: usize,
}

/// Counts one request as in flight until this permit is dropped, after the response has been sent in full.
#[derive(Debug)]
pub struct ConcurrencyPermit {
    count: Rc<Cell<usize>>,
    /// Counts the request in the quota of its client, where the plan limits the requests of each client.
    client: OnceCell<ClientQuotaPermit>,
}

impl ConcurrencyLimit {
    pub fn new(most: usize) -> Self {
        Self { count: Rc::default(), limit: most }
    }

    /// Returns a limit that shares the counter of this one and has the maximum of another plan.
    pub fn with_max_requests(&self, most: usize) -> Self {
        Self { count: self.count.clone(), limit: most }
    }

    pub(crate) fn try_acquire(&self) -> Option<ConcurrencyPermit> {
        let count = self.count.get();
        (count < self.limit).then(|| {
            self.count.set(count + 1);
            ConcurrencyPermit { count: self.count.clone(), client: OnceCell::new() }
        })
    }
}

impl ConcurrencyPermit {
    /// Keeps `share`, which counts the request in the quota of its client, until this permit is dropped.
    pub(crate) fn add_client_share(&self, share: ClientQuotaPermit) {
        self.client.get_or_init(|| share);
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
    }
}
