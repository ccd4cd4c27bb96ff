//! The requests that wait for or hold lock nodes of their own, for whoever looks: nothing is decided by it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use fencegate_policies::{key::ResourceKey, plan::Mode};
use fencegate_process::clock::Boot;

use crate::recipe::grant::Grant;
use crate::tenures::wish::Wish;

/// By number of arrival. Such a request costs a quorum write, so one mutex for all of them is not felt.
#[derive(Debug, Default)]
pub struct Roll(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    all: BTreeMap<u64, Arc<Request>>,
    next: u64,
}

/// One request, as it is known from its beginning on.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) keys: Vec<ResourceKey>,
    pub(super) mode: Mode,
    pub(super) route: Arc<str>,
    pub(super) asking: Asking,
    pub(super) granted: OnceLock<(Grant, Boot)>,
    /// How often it was sent upstream again.
    again: AtomicU32,
}

/// When it began to wait, and whether another holder was before it.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) asked: Boot,
    pub(super) behind: Arc<AtomicBool>,
}

/// The entry of one request, until this is dropped.
#[derive(Debug)]
pub struct Enrolled {
    roll: Arc<Roll>,
    number: u64,
    request: Arc<Request>,
}

impl Roll {
    pub(super) fn enrol(self: &Arc<Self>, wish: Wish<'_>, asking: Asking) -> Enrolled {
        let request = Arc::new(Request {
            keys: wish.keys.to_vec(),
            mode: wish.mode,
            route: wish.route.clone(),
            asking,
            granted: OnceLock::new(),
            again: AtomicU32::new(0),
        });
        let mut requests = self.requests();
        let number = requests.next;
        requests.next += 1;
        requests.all.insert(number, request.clone());
        Enrolled { roll: self.clone(), number, request }
    }

    /// All of them, the longest here first.
    pub(super) fn all(&self) -> Vec<Arc<Request>> {
        self.requests().all.values().cloned().collect()
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Request {
    /// G of the last dispatch.
    pub(super) fn dispatched(&self) -> u32 {
        self.again.load(Ordering::Relaxed).saturating_add(1)
    }
}

impl Enrolled {
    pub(super) fn granted(&self, grant: &Grant, now: Boot) {
        self.request.granted.get_or_init(|| (grant.clone(), now));
    }

    /// It is sent once more.
    pub(super) fn dispatched(&self) {
        self.request.again.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        self.roll.requests().all.remove(&self.number);
    }
}
