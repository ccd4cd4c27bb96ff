//! Remembers, for each reason, the last caller that came to a guard without a valid claim, so that an operator can
//! find it.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use hyper::Method;

/// By the word of the refusal. There are only a few.
#[derive(Debug, Default)]
pub struct RejectedCallers(Mutex<BTreeMap<&'static str, RejectedCaller>>);

#[derive(Debug, Clone)]
pub struct RejectedCaller {
    pub at: SystemTime,
    pub peer: SocketAddr,
    /// The client for which the caller forwards, if that is another one.
    pub client: Option<IpAddr>,
    pub method: Method,
}

impl RejectedCallers {
    pub fn record(&self, word: &'static str, stranger: RejectedCaller) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(word, stranger);
    }

    pub fn last(&self, word: &str) -> Option<RejectedCaller> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(word).cloned()
    }
}
