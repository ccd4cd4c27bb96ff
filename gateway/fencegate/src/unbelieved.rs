//! The last caller of each kind that came to a guard with no claim, or with one that no gateway has made: whoever it was
//! has to be found.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use hyper::Method;

/// By the word of the refusal: a handful.
#[derive(Debug, Default)]
pub struct Unbelieved(Mutex<BTreeMap<&'static str, Stranger>>);

#[derive(Debug, Clone)]
pub struct Stranger {
    pub at: SystemTime,
    pub peer: SocketAddr,
    /// On whose behalf, where that is somebody else.
    pub client: Option<IpAddr>,
    pub method: Method,
}

impl Unbelieved {
    pub fn came(&self, word: &'static str, stranger: Stranger) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(word, stranger);
    }

    pub fn last(&self, word: &str) -> Option<Stranger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(word).cloned()
    }
}
