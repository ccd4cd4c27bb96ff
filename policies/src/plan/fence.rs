//! The fence of a route: the keys that it locks, how it takes the lock, and how long it keeps it.

use std::{mem::discriminant, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    layout::{LockLocation, LockPlacement},
    once::{EffectiveIdempotency, IdempotencyRule},
    shown::{self, format_duration},
};
use crate::client_name::CertificateNameKind;
use crate::key::{
    BodyValues, ContentDeclaration, ExpandedKeys, ExtractKeyError, FormValues, JsonPointer, JsonValues,
    KeyTemplate, ParseBodyError, RequestParameterSources, RequestValues, ResourceKey, SourceConflictPolicy,
    SourceValue, TemplateValueSource, TemplateVariable, compare_with_other_sources,
};
use crate::permits::PermitCount;
use crate::plan::peer_listener::PeerForwardPolicy;
use crate::words::words;

/// The fence of a route: the keys that its requests lock, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceRule {
    /// The templates of the keys, in the order of the file: at least one, and exactly one unless [`FenceRule::set`] is
    /// true.
    pub keys: Vec<KeyTemplate>,
    /// True if the keys of a request are a set, also a set of one key: all are taken at once, and released after the
    /// request.
    pub set: bool,
    /// The layout and place of the locks, and the number of holders; always native for a set.
    pub placing: LockPlacement,
    /// The lock that requests take in addition, while the gateways migrate from it to the lock of this fence.
    pub former: Option<FormerLock>,
    pub mode: LockModeRule,
    /// The longest time that a request waits for its lock. Default 5 s.
    pub wait: Duration,
    /// The most waiting requests for each key and gateway. Default 100.
    pub queue: usize,
    /// The most requests of one client that wait for or hold keys of the route at this gateway. Default: no limit.
    pub client_share: Option<usize>,
    /// The template that identifies a client for [`FenceRule::client_share`]. Default: the client's address.
    pub client_share_by: Option<KeyTemplate>,
    /// Whether a lock is kept between requests. Always [`LockReusePolicy::Strict`] for a set and for permits.
    pub hold: LockReusePolicy,
    pub forward: PeerForwardPolicy,
    pub nested: NestedRequestPolicy,
    /// The status of a refusal because another request holds the key: 423 by default; 409, 429 or 503 if configured.
    pub locked_status: u16,
    /// A response up to this size in bytes is buffered in full before the key is handed on. Default 1 MiB.
    pub max_response: usize,
    pub large_bodies: LargeBodyPolicy,
    pub body_type: BodyTypeRequirement,
    /// True if the service reads every JSON integer of 64 bits exactly. Default: false, for a service that reads
    /// integers as doubles, with 53 bits.
    pub exact_numbers: bool,
    /// The most items that a list in a body may have from which keys are made; each of these items is in a key. `None`
    /// if no key is made of a single item.
    pub only: Option<usize>,
    /// The most keys of one request, without those of [`FenceRule::former`]. Default 16.
    pub max_keys: usize,
    /// The treatment of a request whose lists are all empty, so that it has no key.
    pub empty: EmptyListPolicy,
    /// The other sources of a request that must not have another value of a key.
    pub conflicts: SourceConflictPolicy,
    pub enforce: Enforcement,
    /// The rule by which operations of this route happen at most once.
    pub once: Option<IdempotencyRule>,
    pub lease: RequestLeasePolicy,
    /// The kind of client name in the keys and operations; `None` if they contain none. It is part of the lock:
    /// gateways that use different kinds of names for the same client would take different locks.
    pub client_name: Option<CertificateNameKind>,
}

/// The treatment of a request with an empty list, from which no key can be made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EmptyListPolicy {
    #[default]
    Refuse,
    /// The list gives no key. A request without any key passes without a lock, because it concerns no resource.
    Pass,
}

words! { EmptyListPolicy { Refuse = "refuse", Pass = "pass" } }

/// The lock from which a fence is migrated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerLock {
    pub key: KeyTemplate,
    pub placing: LockPlacement,
}

/// The content type that a request must declare for a body from which a key is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BodyTypeRequirement {
    /// The request must declare JSON in UTF-8, without compression.
    #[default]
    Json,
    /// The request may declare anything, because the service reads every body as JSON.
    Any,
}

words! { BodyTypeRequirement { Json = "json", Any = "any" } }

/// The treatment of a request whose body is too large to be buffered in full before the lock is requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LargeBodyPolicy {
    #[default]
    Refuse,
    /// The body is sent under the lock while it arrives.
    Stream {
        /// The longest time from the dispatch to the last byte, so that a slow client does not hold the lock for
        /// longer.
        within: Duration,
    },
}

impl LargeBodyPolicy {
    /// The default of `within`.
    pub const WITHIN: Duration = Duration::from_secs(60);

    /// The words of a policy. `stream` stands for the default time limit.
    pub(crate) const WORDS: [(&str, Self); 2] =
        [("refuse", Self::Refuse), ("stream", Self::Stream { within: Self::WITHIN })];

    /// The word in a policy.
    pub fn as_str(self) -> &'static str {
        let word = |(_, policy): &&(&str, Self)| discriminant(policy) == discriminant(&self);
        Self::WORDS.iter().find(word).expect("each has a word").0
    }
}

/// The treatment of a request that a service sends while it works on a dispatch, with the ticket and the token of that
/// dispatch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NestedRequestPolicy {
    /// The gateway ignores ticket and token. The request waits for its key like any other.
    #[default]
    Ignore,
    /// A request for the same key runs inside that dispatch without waiting. Every dispatch then carries a ticket,
    /// whatever the fencing level of the upstream is.
    Allow,
}

words! { NestedRequestPolicy { Ignore = "ignore", Allow = "allow" } }

/// The treatment of requests with the lease of a client (`Fencing-Lease`), and of requests without one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RequestLeasePolicy {
    /// A request with a lease is refused, because it would wait for the lock of its own lease.
    #[default]
    Never,
    /// A request with a lease runs under it. A request without one takes the lock itself.
    Optional,
    /// A request with a lease runs under it. A request without one is refused.
    Required,
}

words! { RequestLeasePolicy { Never = "never", Optional = "optional", Required = "required" } }

/// Whether the gateway refuses requests that should be refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Enforcement {
    #[default]
    Refuse,
    /// Such a request passes and is reported. A migration begins with this setting.
    Observe,
}

words! { Enforcement { Refuse = "refuse", Observe = "observe" } }

impl FenceRule {
    /// The default of `max_keys`.
    pub const MAX_KEYS: usize = 16;

    /// A fence with these keys, and the defaults of all other fields.
    pub(crate) fn with_defaults(keys: Vec<KeyTemplate>) -> Self {
        Self {
            keys,
            set: false,
            placing: LockPlacement::Native,
            former: None,
            mode: LockModeRule::default(),
            wait: Duration::from_secs(5),
            queue: 100,
            client_share: None,
            client_share_by: None,
            hold: LockReusePolicy::Cached(CachedHoldLimits::default()),
            forward: PeerForwardPolicy::default(),
            nested: NestedRequestPolicy::default(),
            locked_status: 423,
            max_response: 1 << 20,
            large_bodies: LargeBodyPolicy::default(),
            body_type: BodyTypeRequirement::default(),
            exact_numbers: false,
            only: None,
            max_keys: Self::MAX_KEYS,
            empty: EmptyListPolicy::default(),
            conflicts: SourceConflictPolicy::default(),
            enforce: Enforcement::default(),
            once: None,
            lease: RequestLeasePolicy::default(),
            client_name: None,
        }
    }

    /// Whether a request of this fence and a request of `other` can lock the same key, by the shapes of the templates.
    pub fn may_share_key(&self, other: &Self) -> bool {
        self.templates().any(|ours| other.templates().any(|theirs| ours.shape() == theirs.shape()))
    }

    /// Whether a key or an operation depends on the body: see [`FenceRule::parse_body`].
    pub fn reads_body(&self) -> bool {
        self.all_templates().any(KeyTemplate::reads_body)
    }

    /// Reads a request body for [`RequestValues`], and keeps the values that this fence's keys and operations need.
    ///
    /// # Errors
    /// Returns an error if another reader could take other values from the body.
    pub fn parse_body(
        &self,
        declaration: &ContentDeclaration<'_>,
        bytes: &[u8],
    ) -> Result<BodyValues, ParseBodyError> {
        let form_fields = || self.all_templates().flat_map(KeyTemplate::form_fields);
        if form_fields().next().is_some() {
            let encoding = declaration.require_form()?;
            return FormValues::parse(encoding, bytes, form_fields()).map(BodyValues::Form);
        }
        if self.body_type == BodyTypeRequirement::Json {
            declaration.require_json()?;
        }
        let largest = match self.exact_numbers {
            true => JsonValues::LARGEST_IN_64_BITS,
            false => JsonValues::LARGEST_IN_DOUBLE,
        };
        let pointers = self.all_templates().flat_map(KeyTemplate::pointers);
        let joined = self.templates().map(KeyTemplate::joined_pointers);
        JsonValues::parse(bytes, pointers, joined, largest).map(BodyValues::Json)
    }

    /// The number of permits of a key; `None` if one request, or any number of readers, can hold it.
    pub fn permits(&self) -> Option<PermitCount> {
        self.placing.permits()
    }

    /// The templates of the fence's keys, and of the former lock.
    pub fn templates(&self) -> impl Iterator<Item = &KeyTemplate> {
        self.keys.iter().chain(self.former.iter().map(|former| &former.key))
    }

    /// The templates of the fence's keys and of the former lock, each with the placement of its locks.
    pub fn locks(&self) -> impl Iterator<Item = (&KeyTemplate, &LockPlacement)> {
        let former = self.former.iter().map(|former| (&former.key, &former.placing));
        self.keys.iter().map(|key| (key, &self.placing)).chain(former)
    }

    /// The templates of keys, of the operation and its principal, and of the client's share.
    pub(crate) fn all_templates(&self) -> impl Iterator<Item = &KeyTemplate> {
        let once = self.once.iter().flat_map(IdempotencyRule::templates);
        self.templates().chain(once).chain(&self.client_share_by)
    }

    /// The client to whose [`FenceRule::client_share`] the request counts; `None` if clients are identified by their
    /// addresses.
    ///
    /// # Errors
    /// Returns an error if the client has no verified value for the template.
    pub fn share_client(&self, values: &dyn RequestValues) -> Result<Option<String>, ExtractKeyError> {
        let by = self.client_share_by.as_ref().filter(|_| self.client_share.is_some());
        by.map(|template| template.expand_operation_name(values)).transpose()
    }

    /// The claims in keys, operations and the client's share.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &JsonPointer> {
        self.all_templates().flat_map(KeyTemplate::claims)
    }

    /// Whether a key, an operation or the client's share contains the name of the client.
    pub(crate) fn reads_client_name(&self) -> bool {
        let mut sources =
            self.all_templates().flat_map(KeyTemplate::variables).map(|variable| &variable.source);
        sources.any(|source| *source == TemplateValueSource::ClientName)
    }

    /// The rule by which a request with this method is an operation; `None` if the method only reads.
    pub fn once_rule(&self, method: &str) -> Option<&IdempotencyRule> {
        self.once.as_ref().filter(|_| self.mode.mode(method) == LockMode::Exclusive)
    }

    /// The location of the lock of each of `keys`, which [`FenceRule::expand_all`] has made.
    ///
    /// # Errors
    /// Returns an error if the values of a key form no path that ZooKeeper accepts.
    pub fn sites(&self, keys: &[ResourceKey]) -> Result<Vec<LockLocation>, ExtractKeyError> {
        match (&self.former, &*self.keys) {
            (Some(former), _)
                if former.placing != LockPlacement::Native || self.placing != LockPlacement::Native =>
            {
                keys.iter().map(|key| self.current_or_former_site(former, key)).collect()
            }
            (None, [template]) => keys.iter().map(|key| self.placing.site(template, key)).collect(),
            _ => Ok(vec![LockLocation::Native; keys.len()]),
        }
    }

    /// The location of one key of a migrated fence. The form of the key shows whether it is a key of the fence or of
    /// the former lock.
    fn current_or_former_site(
        &self,
        former: &FormerLock,
        key: &ResourceKey,
    ) -> Result<LockLocation, ExtractKeyError> {
        match self.keys.iter().find(|template| template.parse_values(key).is_some()) {
            Some(template) => self.placing.site(template, key),
            None => former.placing.site(&former.key, key),
        }
    }

    /// The location of the lock of `key`; `None` if no request of this fence can take it.
    pub fn site_of(&self, key: &ResourceKey) -> Option<LockLocation> {
        let (template, placing) = self.locks().find(|(template, _)| template.parse_values(key).is_some())?;
        placing.site(template, key).ok()
    }

    /// Compares the values of the request's keys, and of the name of its operation, with the other sources of the
    /// request.
    ///
    /// # Errors
    /// Returns an error if the service may read another value than the one in the key.
    pub fn compare_sources(
        &self,
        method: &str,
        values: &dyn RequestValues,
        sent: &RequestParameterSources<'_>,
    ) -> Result<(), ExtractKeyError> {
        let once = self.once_rule(method).into_iter().flat_map(IdempotencyRule::templates);
        compare_with_other_sources(self.templates().chain(once), &self.conflicts, values, sent)
    }

    /// The values that a request has for the variables of the keys, of its operation and of the client's share, before
    /// and after their filters, in the order of the templates. A variable of several templates is listed once.
    pub fn source_values(&self, method: &str, values: &dyn RequestValues) -> Vec<SourceValue> {
        let once = self.once_rule(method).into_iter().flat_map(IdempotencyRule::templates);
        let templates = self.templates().chain(once).chain(&self.client_share_by);
        let mut shown: Vec<&TemplateVariable> = Vec::new();
        for variable in templates.flat_map(KeyTemplate::variables) {
            let is_same = |other: &&TemplateVariable| {
                other.source == variable.source && other.filters == variable.filters
            };
            if !shown.iter().any(is_same) {
                shown.push(variable);
            }
        }
        shown.into_iter().flat_map(|variable| variable.source_values(values)).collect()
    }

    /// The keys of one request: each once, in the order that all gateways use. The list is empty only if
    /// [`FenceRule::empty`] lets empty lists pass.
    ///
    /// # Errors
    /// Returns an error if a key cannot be made, or if there are more keys than one request may have.
    pub fn expand_all(&self, values: &dyn RequestValues) -> Result<Vec<ResourceKey>, ExtractKeyError> {
        let mut keys = self.expand_set(self.keys.iter(), self.max_keys, values)?;
        if let Some(former) = &self.former {
            keys.extend(self.expand_set(std::iter::once(&former.key), self.max_keys, values)?);
            keys.sort_unstable();
            keys.dedup();
        }
        ResourceKey::check_set_size(keys.iter().map(ResourceKey::as_str))?;
        Ok(keys)
    }

    fn expand_set<'t>(
        &self,
        templates: impl Iterator<Item = &'t KeyTemplate>,
        most: usize,
        values: &dyn RequestValues,
    ) -> Result<Vec<ResourceKey>, ExtractKeyError> {
        let mut keys = Vec::new();
        for template in templates {
            match template.expand_all(values) {
                Ok(ExpandedKeys { beyond: Some(count), .. }) => {
                    return Err(ExtractKeyError::TooManyKeys { count, most });
                }
                Ok(expanded) => keys.extend(expanded.keys),
                Err(ExtractKeyError::EmptyList { .. }) if self.empty == EmptyListPolicy::Pass => {}
                Err(bad) => return Err(bad),
            }
        }
        keys.sort_unstable();
        keys.dedup();
        if keys.len() > most {
            Err(ExtractKeyError::TooManyKeys { count: keys.len(), most })
        } else {
            Ok(keys)
        }
    }
}

/// Who else may hold a key at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Mode))]
pub enum LockMode {
    /// Nobody.
    Exclusive,
    /// Other requests that share the key.
    Shared,
}

impl LockMode {
    /// Reads [`LockMode::as_str`] back.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Exclusive, Self::Shared].into_iter().find(|mode| mode.as_str() == word)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            LockMode::Exclusive => "exclusive",
            LockMode::Shared => "shared",
        }
    }
}

/// The rule by which a route determines the lock mode of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LockModeRule {
    #[default]
    Exclusive,
    Shared,
    /// Shared for GET and HEAD, which change nothing (RFC 9110, section 9.2.1), and exclusive for all other methods.
    ByMethod,
}

impl LockModeRule {
    /// The mode of a request with this method. Methods are case-sensitive: `get` is exclusive.
    pub fn mode(self, method: &str) -> LockMode {
        match (self, method) {
            (Self::Shared, _) | (Self::ByMethod, "GET" | "HEAD") => LockMode::Shared,
            (Self::Exclusive | Self::ByMethod, _) => LockMode::Exclusive,
        }
    }

    /// Whether some request takes a shared lock.
    pub fn has_shared_requests(self) -> bool {
        self != Self::Exclusive
    }
}

words! { LockModeRule { Exclusive = "exclusive", Shared = "shared", ByMethod = "by-method" } }

/// Whether a lock node is kept after its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockReusePolicy {
    /// Each request makes a lock node of its own.
    Strict,
    /// The lock node is kept for later requests.
    Cached(CachedHoldLimits),
}

/// How long a gateway keeps a key for its own requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = EffectiveHoldLimits))]
pub struct CachedHoldLimits {
    /// A key that no request wants is released after this long. Default 250 ms.
    #[serde(serialize_with = "shown::duration")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub linger: Duration,
    /// Requests that may still be granted once another gateway wants the key; at least 1. Default 64.
    pub max_local: u32,
    /// No request is granted later than this after another gateway began to want the key. Default 100 ms.
    #[serde(serialize_with = "shown::duration")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub max_hold: Duration,
    /// The longest that one node is kept, even when no other gateway wants it. Default 10 min.
    #[serde(serialize_with = "shown::duration")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub max_tenure: Duration,
}

impl Default for CachedHoldLimits {
    fn default() -> Self {
        Self {
            linger: Duration::from_millis(250),
            max_local: 64,
            max_hold: Duration::from_millis(100),
            max_tenure: Duration::from_secs(600),
        }
    }
}

/// A fence as operators see it, with every field.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveFence {
    pub keys: Vec<String>,
    /// Whether a request takes all of its keys together, by `keys`.
    pub set: bool,
    pub layout: &'static str,
    /// Where the lock nodes of another layout lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_path: Option<String>,
    /// The number of permits; absent if one request, or any number of readers, can hold the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<u16>,
    /// The lock that requests take as well, while gateways migrate from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrate_from: Option<EffectiveFormerLock>,
    pub mode: &'static str,
    pub wait: String,
    pub queue: usize,
    /// The most requests of one client that wait for or hold keys of the route; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_share: Option<usize>,
    /// What tells clients apart for that; absent if their addresses do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_share_by: Option<String>,
    /// `strict`, or `cached` with its linger.
    pub hold: String,
    /// The limits of `cached`; absent with `strict`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_limits: Option<CachedHoldLimits>,
    /// `never`, or `holder`.
    pub forward: &'static str,
    /// `ignore`, or `allow`.
    pub nested: &'static str,
    /// The status of a refusal because another request holds the key.
    pub locked_status: u16,
    /// An answer up to this size, in bytes, is buffered in full before the key is handed on.
    pub max_response: usize,
    /// `refuse`, or `stream`.
    pub large_bodies: &'static str,
    /// The longest time from the dispatch to the last byte, with `stream`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_timeout: Option<String>,
    /// What a body must be declared as from which a key is taken: `json`, or `any`.
    pub body_type: &'static str,
    /// Whether integers of 64 bits in JSON are values, or those that a double holds exactly.
    pub exact_numbers: bool,
    /// Operations that happen at most once: where they are stored.
    pub once: Option<&'static str>,
    /// How operations are named and kept; absent without `once`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<EffectiveIdempotency>,
    /// How many items a list in a body may have of which keys are made; absent if no key is made of an item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<usize>,
    /// The most keys of one request; absent if no request has more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_keys: Option<usize>,
    /// What becomes of a request whose list is empty: `refuse`, or `pass`; absent if no key is made of each item of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty: Option<&'static str>,
    /// The sources of a request that are compared with the values of its keys: `path`, `query`, `form`, `json`, `xml`, `cookie`, `wrapped`.
    pub sources: Vec<&'static str>,
    /// `refuse`, or `pass` if nothing is compared.
    pub conflicts: &'static str,
    /// `refuse`, or `observe`: then what should be refused passes, and is reported.
    pub enforce: &'static str,
    /// `never`, `optional` or `required`.
    pub lease: &'static str,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveFormerLock {
    pub key: String,
    pub layout: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_path: Option<String>,
}

impl EffectiveFence {
    pub(super) fn new(fence: &FenceRule) -> Self {
        let FenceRule {
            keys,
            set,
            placing,
            former,
            mode,
            wait,
            queue,
            client_share,
            client_share_by,
            hold,
            forward,
            nested,
            locked_status,
            max_response,
            large_bodies,
            body_type,
            exact_numbers,
            only,
            max_keys,
            empty,
            conflicts,
            enforce,
            once,
            lease,
            // The kind of name is shown with the listener.
            client_name: _,
        } = fence;
        Self {
            keys: keys.iter().map(ToString::to_string).collect(),
            set: *set,
            layout: placing.layout().as_str(),
            lock_path: lock_path(placing),
            permits: placing.permits().map(PermitCount::count),
            migrate_from: former.as_ref().map(EffectiveFormerLock::new),
            mode: mode.as_str(),
            wait: format_duration(*wait),
            queue: *queue,
            client_share: *client_share,
            client_share_by: client_share_by.as_ref().map(ToString::to_string),
            hold: match hold {
                LockReusePolicy::Strict => "strict".into(),
                LockReusePolicy::Cached(limits) => {
                    format!("cached, linger {}", format_duration(limits.linger))
                }
            },
            hold_limits: match hold {
                LockReusePolicy::Strict => None,
                LockReusePolicy::Cached(limits) => Some(*limits),
            },
            forward: forward.as_str(),
            nested: nested.as_str(),
            locked_status: *locked_status,
            max_response: *max_response,
            large_bodies: large_bodies.as_str(),
            upload_timeout: upload_timeout(*large_bodies).map(format_duration),
            body_type: body_type.as_str(),
            exact_numbers: *exact_numbers,
            once: once.as_ref().map(|once| once.store.as_str()),
            operation: once.as_ref().map(EffectiveIdempotency::new),
            only: *only,
            max_keys: set.then_some(*max_keys),
            empty: fence.templates().any(|key| key.has_list()).then(|| empty.as_str()),
            sources: conflicts.compared_sources().map(|(word, _)| word).collect(),
            conflicts: conflicts.as_str(),
            enforce: enforce.as_str(),
            lease: lease.as_str(),
        }
    }
}

fn lock_path(placing: &LockPlacement) -> Option<String> {
    match placing {
        LockPlacement::Native | LockPlacement::Semaphore { permits: _ } => None,
        LockPlacement::Foreign { layout: _, path } => Some(path.to_string()),
    }
}

fn upload_timeout(large_bodies: LargeBodyPolicy) -> Option<Duration> {
    match large_bodies {
        LargeBodyPolicy::Refuse => None,
        LargeBodyPolicy::Stream { within } => Some(within),
    }
}

impl EffectiveFormerLock {
    fn new(former: &FormerLock) -> Self {
        let FormerLock { key, placing } = former;
        Self { key: key.to_string(), layout: placing.layout().as_str(), lock_path: lock_path(placing) }
    }
}

#[cfg(test)]
mod tests;
