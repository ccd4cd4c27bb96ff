//! Counts the requests that one worker has in flight.

use std::{
    cell::{Cell, OnceCell},
    rc::Rc,
};

use fencegate_http::client_quota::ClientQuotaPermit;

/// How many requests one worker has in flight at most.
#[derive(Debug, Clone)]
pub struct ConcurrencyLimit {
    count: Rc<Cell<usize>>,
    limit: usize,
}

/// One request in flight, until its response has been sent in full.
#[derive(Debug)]
pub struct ConcurrencyPermit {
    count: Rc<Cell<usize>>,
    /// The same request in the count of its client, if clients are limited.
    client: OnceCell<ClientQuotaPermit>,
}

impl ConcurrencyLimit {
    pub fn new(most: usize) -> Self {
        Self { count: Rc::default(), limit: most }
    }

    /// The same counter, with the limit of another plan.
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
    /// Counts the request for its client as well, until this permit ends.
    pub(crate) fn add_client_share(&self, share: ClientQuotaPermit) {
        self.client.get_or_init(|| share);
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
    }
}
