//! What a gateway publishes of its plan, and who judges what the others have published. Here it is bytes with a name.

use std::{fmt, sync::Arc};

use aws_lc_rs::digest::{SHA256, digest};
use fencegate_policies::hex;

/// Bytes, named by their hash.
#[derive(Clone, PartialEq, Eq)]
pub struct Publication {
    fingerprint: Arc<str>,
    bytes: Arc<[u8]>,
}

/// Another gateway that is registered, by one of its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    pub gateway: String,
    pub age: Age,
    pub says: Says,
}

/// Of what another gateway has published, beside what was published by the session that looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// It was there before, and does not know of ours: we have to give way.
    Older,
    /// It has seen ours, and gives way itself.
    Younger,
    /// It never gives way: a build that neither publishes nor looks.
    Blind,
}

/// What another gateway has published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says {
    Published(Publication),
    /// Why it cannot be read.
    Unreadable(String),
    /// Nothing. Its locks are others than ours, by the fingerprint that builds before this one compare.
    Unlike,
}

/// Knows what the bytes mean. Called on the thread of the sessions, for which it must not take long.
pub trait Judge: fmt::Debug + Send + Sync {
    /// `session` has published `ours`, and these have published something else. What they leave to it holds from now on.
    fn judge(&self, session: i64, ours: &Publication, others: &[Other]);

    /// `session` is about to publish `next` in the place of `ours`. From now on only what both leave to it holds.
    ///
    /// # Errors
    /// It may not: its rank would change while it works on what another gateway locks otherwise. Why, for the log.
    fn turns(
        &self,
        session: i64,
        ours: &Publication,
        next: &Publication,
        others: &[Other],
    ) -> Result<(), String>;

    /// Nothing holds of that session any more.
    fn ended(&self, session: i64);
}

impl Publication {
    pub fn of(bytes: Vec<u8>) -> Self {
        let hash = digest(&SHA256, &bytes);
        let mut digits = vec![0; 2 * hash.as_ref().len()];
        hex::write(hash.as_ref(), &mut digits);
        let fingerprint = String::from_utf8(digits).expect("hex digits are ASCII");
        Self { fingerprint: fingerprint.into(), bytes: bytes.into() }
    }

    /// 64 hex digits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Not the bytes: there may be very many.
impl fmt::Debug for Publication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Publication({}, {} bytes)", self.fingerprint, self.bytes.len())
    }
}
