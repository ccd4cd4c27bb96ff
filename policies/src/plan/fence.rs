//! How a route takes its lock, which keys that lock has, and how long it is kept.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    layout::{LockSite, Placing},
    once::Once,
};
use crate::key::{
    BadKey, KeyTemplate, Pointer, ResourceKey, Said, Values,
    json::{BadBody, Body},
};
use crate::permits::Permits;
use crate::plan::peer_listener::Forward;

/// How a route takes its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// At least one, and exactly one unless [`Fence::set`]; in the order of the file.
    pub keys: Vec<KeyTemplate>,
    /// Written as `keys`, be it one: all are taken at once, and given back after the request.
    pub set: bool,
    /// Where the locks of its keys lie, and how many hold one; only native for a set.
    pub placing: Placing,
    /// The lock that its requests take as well, while a fleet turns from that one to this one.
    pub former: Option<Former>,
    pub mode: ModeRule,
    /// How long a request waits for its lock. Default 5 s.
    pub wait: Duration,
    /// Waiting requests per key and gateway. Default 100.
    pub queue: usize,
    /// Requests of one client that wait for or hold keys of the route at this gateway. Default: as many as it likes.
    pub client_share: Option<usize>,
    /// Always [`Hold::Strict`] for a set and for permits.
    pub hold: Hold,
    pub forward: Forward,
    pub nested: Nested,
    /// Status of a refusal because another one holds the key: 423 unless configured (409, 429, 503).
    pub locked_status: u16,
    /// An answer up to this size is taken in full before the key is given on. Default 1 MiB.
    pub max_response: usize,
    pub large_bodies: LargeBodies,
    pub body_type: BodyType,
    pub enforce: Enforce,
    /// Operations of this route happen at most once.
    pub once: Option<Once>,
    pub lease: LeaseUse,
}

/// A lock from which a fence is migrated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Former {
    pub key: KeyTemplate,
    pub placing: Placing,
}

/// What a request has to say of a body that a key is taken from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BodyType {
    /// That it is JSON in UTF-8, and not compressed.
    #[default]
    Json,
    /// Whatever it says: the service takes every body for JSON.
    Any,
}

/// What becomes of a request whose body is larger than what is taken in full before the lock is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LargeBodies {
    #[default]
    Refuse,
    /// It goes up under the lock, while it comes.
    Stream {
        /// From the dispatch to its last byte: a slow client holds the lock no longer than that.
        within: Duration,
    },
}

impl LargeBodies {
    /// Unless a route says otherwise.
    pub const WITHIN: Duration = Duration::from_secs(60);
}

/// What becomes of a request that was called from a dispatch, by a service that shows the ticket and the token of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Nested {
    /// Nobody reads what it shows: it waits for its key as every other one.
    #[default]
    Ignore,
    /// It runs inside that dispatch where it is about the same key, and waits for nothing. Dispatches carry tickets, whatever
    /// their upstream compares.
    Allow,
}

/// What becomes of a request that shows the lease of a client (`Fencing-Lease`), and of one that does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LeaseUse {
    /// One that shows a lease is refused: it would wait for its own lock.
    #[default]
    Never,
    /// It runs under the lease. One without takes the lock for itself.
    Optional,
    /// It runs under the lease. One without is refused.
    Required,
}

/// Whether what should be refused is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Enforce {
    #[default]
    Refuse,
    /// It passes, and is reported: how one adopts fencing in production.
    Observe,
}

impl LeaseUse {
    pub fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

impl Fence {
    /// Some requests of this one and some of `other` may lock one key, as far as the templates show.
    pub fn may_share_key(&self, other: &Self) -> bool {
        self.templates().any(|ours| other.templates().any(|theirs| ours.shape() == theirs.shape()))
    }

    /// True if a key or an operation is not known before the body is: see [`Fence::body`].
    pub fn reads_body(&self) -> bool {
        self.pointers().next().is_some()
    }

    /// Reads a request body for [`Values::body`], and keeps what this fence's keys and operations ask for.
    ///
    /// # Errors
    /// Another reader could take other values from it.
    pub fn body(&self, said: &Said<'_>, bytes: &[u8]) -> Result<Body, BadBody> {
        if self.body_type == BodyType::Json {
            said.is_json()?;
        }
        Body::parse(bytes, self.pointers())
    }

    /// So many requests hold one key at once; `None` where one does, or readers do.
    pub fn permits(&self) -> Option<Permits> {
        self.placing.permits()
    }

    /// Those of its keys, and that of the lock that it is migrated from.
    pub fn templates(&self) -> impl Iterator<Item = &KeyTemplate> {
        self.keys.iter().chain(self.former.iter().map(|former| &former.key))
    }

    /// The same, each with the place of its locks.
    pub fn locks(&self) -> impl Iterator<Item = (&KeyTemplate, &Placing)> {
        let former = self.former.iter().map(|former| (&former.key, &former.placing));
        self.keys.iter().map(|key| (key, &self.placing)).chain(former)
    }

    fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        let once = self.once.iter().flat_map(Once::templates);
        self.templates().chain(once).flat_map(KeyTemplate::pointers)
    }

    /// What makes a request of that method an operation; what changes nothing may happen often.
    pub fn once(&self, method: &str) -> Option<&Once> {
        self.once.as_ref().filter(|_| self.mode.mode(method) == Mode::Exclusive)
    }

    /// Where the lock of each of `keys` lies, which [`Fence::expand_all`] has made.
    ///
    /// # Errors
    /// The values of a key make no path that ZooKeeper would take.
    pub fn sites(&self, keys: &[ResourceKey]) -> Result<Vec<LockSite>, BadKey> {
        match (&self.former, &*self.keys) {
            (Some(former), _) if former.placing != Placing::Native || self.placing != Placing::Native => {
                keys.iter().map(|key| self.site_beside(former, key)).collect()
            }
            (None, [template]) => keys.iter().map(|key| self.placing.site(template, key)).collect(),
            _ => Ok(vec![LockSite::Native; keys.len()]),
        }
    }

    /// Of a fence that is migrated: which of both locks a key is of shows in the key.
    fn site_beside(&self, former: &Former, key: &ResourceKey) -> Result<LockSite, BadKey> {
        match self.keys.iter().find(|template| template.values_of(key).is_some()) {
            Some(template) => self.placing.site(template, key),
            None => former.placing.site(&former.key, key),
        }
    }

    /// Where the lock of `key` lies, if some request of this fence may take it.
    pub fn site_of(&self, key: &ResourceKey) -> Option<LockSite> {
        let (template, placing) = self.locks().find(|(template, _)| template.values_of(key).is_some())?;
        placing.site(template, key).ok()
    }

    /// The keys of one request: at least one, each of them once, in the order in which everybody sorts them.
    pub fn expand_all(&self, values: &dyn Values) -> Result<Vec<ResourceKey>, BadKey> {
        let keys = self.templates().map(|key| key.expand(values));
        let mut keys = keys.collect::<Result<Vec<_>, _>>()?;
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }
}

/// Who else may hold a key at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Mode {
    /// Nobody.
    Exclusive,
    /// Everybody who shares it, too.
    Shared,
}

impl Mode {
    /// Reads [`Mode::word`] back.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Exclusive, Self::Shared].into_iter().find(|mode| mode.word() == word)
    }

    pub fn word(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
        }
    }
}

/// How a route finds the mode of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeRule {
    Exclusive,
    Shared,
    /// Shared for GET and HEAD, which change nothing (RFC 9110, 9.2.1), exclusive for all others.
    ByMethod,
}

impl ModeRule {
    /// Methods compare exactly: `get` is exclusive.
    pub fn mode(self, method: &str) -> Mode {
        match (self, method) {
            (Self::Shared, _) | (Self::ByMethod, "GET" | "HEAD") => Mode::Shared,
            (Self::Exclusive | Self::ByMethod, _) => Mode::Exclusive,
        }
    }

    /// Some request shares its key.
    pub fn shares(self) -> bool {
        self != Self::Exclusive
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::ByMethod => "by-method",
        }
    }
}

/// What becomes of a lock node after its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// One lock node per request.
    Strict,
    /// The node is kept for the requests to come.
    Cached(Caching),
}

/// How long a gateway keeps a key for its own requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caching {
    /// A key that nobody asks for is given back after this long. Default 250 ms.
    pub linger: Duration,
    /// Requests that may still be let in once somebody else wants the key; at least 1. Default 64.
    pub max_local: u32,
    /// None is let in any more this long after somebody else began to want the key. Default 100 ms.
    pub max_hold: Duration,
    /// The longest that one node is kept, even when nobody else wants it. Default 10 min.
    pub max_tenure: Duration,
}

impl Default for Caching {
    fn default() -> Self {
        Self {
            linger: Duration::from_millis(250),
            max_local: 64,
            max_hold: Duration::from_millis(100),
            max_tenure: Duration::from_secs(600),
        }
    }
}

#[cfg(test)]
mod tests;
