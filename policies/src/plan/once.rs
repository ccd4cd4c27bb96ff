//! The rule by which requests of a route are operations that happen at most once.

use std::time::Duration;

use serde::Serialize;

use super::shown::format_duration;
use crate::{
    key::{ExtractKeyError, KeyTemplate, RequestValues},
    words::words,
};

/// The settings of `once` on a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRule {
    pub store: IdempotencyStore,
    /// The template for the name of the operation. Default `{header.idempotency-key}`.
    pub key: KeyTemplate,
    /// The template for the owner of the operation: two principals may use the same name for different operations.
    /// By default operations have no owner.
    pub principal: Option<KeyTemplate>,
    /// The scope in which names are unique: all routes with the same scope share their operations. Default empty.
    pub scope: String,
    /// True if requests without a name are refused; false if they run without a record. Default true.
    pub required: bool,
    /// The time for which a finished operation is stored. Default 24 h.
    pub keep: Duration,
    /// The statuses that end an operation, in addition to those that always do: see [`super::OperationEndStatus`].
    pub finals: Vec<u16>,
    /// The limits for the operations that ZooKeeper stores. A guard has limits of its own.
    pub memory: OperationQuota,
}

/// The most operations of one route, and of one client, that ZooKeeper stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationQuota {
    /// The most operations of the route.
    pub route: usize,
    /// The most operations of one principal, on all routes. `None` if the route has no principals.
    pub client: Option<usize>,
}

/// The store of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdempotencyStore {
    /// The guard, which can replay responses.
    Guard,
    /// ZooKeeper, for upstreams without a guard: each operation is dispatched at most once, and no response is
    /// stored.
    ZooKeeper,
}

words! { IdempotencyStore { Guard = "guard", ZooKeeper = "zookeeper" } }

/// The name that a client gives to one operation. Both parts are printable ASCII without spaces. Different values
/// never give the same name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientOperationName {
    pub name: String,
    /// The principal; empty if the route has none.
    pub principal: String,
}

/// The reason for which a request has no valid name for its operation. The variants differ because a request may
/// have a valid `Idempotency-Key` and no valid principal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationNameError {
    #[error(transparent)]
    Name(ExtractKeyError),
    #[error(transparent)]
    Principal(ExtractKeyError),
}

impl IdempotencyRule {
    pub const KEEP: Duration = Duration::from_secs(24 * 60 * 60);
    /// The default of [`OperationQuota::route`]: half of all operations that ZooKeeper may store.
    pub const SHARE: usize = 50_000;
    /// The default of [`OperationQuota::client`]: a tenth of all operations that ZooKeeper may store.
    pub const CLIENT_SHARE: usize = 10_000;

    pub(crate) fn default_key() -> KeyTemplate {
        KeyTemplate::parse("{header.idempotency-key}").expect("a template")
    }

    /// The name of the operation of a request; `Ok(None)` for a request without a name if none is required. A
    /// request with a name but without a principal is refused in any case.
    ///
    /// # Errors
    /// Returns an error if a value is missing, empty, longer than 255 characters, or contains a character that is
    /// not allowed in a key. An `Idempotency-Key` in quotes is the same as one without.
    pub fn operation_name(
        &self,
        values: &dyn RequestValues,
    ) -> Result<Option<ClientOperationName>, OperationNameError> {
        let name = match self.key.expand_operation_name(values) {
            Err(ExtractKeyError::Missing { .. }) if !self.required => return Ok(None),
            name => name.map_err(OperationNameError::Name)?,
        };
        let principal =
            self.principal.as_ref().map(|principal| principal.expand_operation_name(values)).transpose();
        let principal = principal.map_err(OperationNameError::Principal)?;
        Ok(Some(ClientOperationName { name, principal: principal.unwrap_or_default() }))
    }

    /// Whether `Idempotency-Key` alone names the operation. With principals, each principal has an operation of this
    /// name.
    pub fn uses_default_header(&self) -> bool {
        self.principal.is_none() && self.key.to_string() == Self::default_key().to_string()
    }

    /// The parts of the rule that decide whether two requests are the same operation. If they change, repeats are
    /// not recognised.
    pub fn identity(&self) -> (IdempotencyStore, &str, String, Option<String>) {
        let principal = self.principal.as_ref().map(ToString::to_string);
        (self.store, &self.scope, self.key.to_string(), principal)
    }

    /// All templates of the rule.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &KeyTemplate> {
        [&self.key].into_iter().chain(&self.principal)
    }
}

/// `once` of a fence as operators see it.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = EffectiveOperation))]
pub struct EffectiveIdempotency {
    /// `guard`, or `zookeeper`.
    pub store: &'static str,
    /// The name of the operation.
    pub key: String,
    /// Its owner; absent if operations have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    pub scope: String,
    /// Whether a request without a name is refused.
    pub required: bool,
    pub keep: String,
    /// Statuses that end an operation, beside those that always do.
    #[serde(rename = "final")]
    pub finals: Vec<u16>,
    /// How many operations of the route ZooKeeper may store; absent with the store of a guard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<usize>,
    /// How many of them may be of one client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_share: Option<usize>,
}

impl EffectiveIdempotency {
    pub(super) fn new(rule: &IdempotencyRule) -> Self {
        let IdempotencyRule { store, key, principal, scope, required, keep, finals, memory } = rule;
        let OperationQuota { route, client } = memory;
        let in_zookeeper = matches!(store, IdempotencyStore::ZooKeeper);
        Self {
            store: store.as_str(),
            key: key.to_string(),
            principal: principal.as_ref().map(ToString::to_string),
            scope: scope.clone(),
            required: *required,
            keep: format_duration(*keep),
            finals: finals.clone(),
            share: in_zookeeper.then_some(*route),
            client_share: client.filter(|_| in_zookeeper),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::HeaderLookup;

    /// A request with its values of `idempotency-key` and `x-shop`.
    struct FixedRequestValues(Option<&'static str>, Option<&'static str>);

    impl RequestValues for FixedRequestValues {
        fn header<'a>(&'a self, name: &str) -> HeaderLookup<'a> {
            let value = if name == "x-shop" { self.1 } else { self.0 };
            value.map_or(HeaderLookup::Absent, |value| HeaderLookup::One(value.as_bytes()))
        }
    }

    fn once(required: bool, principal: Option<&str>) -> IdempotencyRule {
        IdempotencyRule {
            store: IdempotencyStore::Guard,
            key: IdempotencyRule::default_key(),
            principal: principal.map(|text| KeyTemplate::parse(text).expect("a template")),
            scope: String::new(),
            required,
            keep: IdempotencyRule::KEEP,
            finals: Vec::new(),
            memory: OperationQuota { route: IdempotencyRule::SHARE, client: None },
        }
    }

    fn operation(name: &str, principal: &str) -> Option<ClientOperationName> {
        Some(ClientOperationName { name: name.into(), principal: principal.into() })
    }

    /// An operation has a name, and a principal if the route has one.
    #[test]
    fn operation_has_name_and_principal() {
        assert_eq!(
            once(true, None).operation_name(&FixedRequestValues(Some("a/b"), None)),
            Ok(operation("a%2Fb", ""))
        );
        let whose = once(true, Some("shop/{header.x-shop}"));
        assert_eq!(
            whose.operation_name(&FixedRequestValues(Some("\"a\""), Some("7"))),
            Ok(operation("a", "shop/7"))
        );
    }

    /// A request may lack the name of its operation only if none is required.
    #[test]
    fn optional_name_may_be_missing() {
        assert!(matches!(
            once(true, None).operation_name(&FixedRequestValues(None, None)),
            Err(OperationNameError::Name(ExtractKeyError::Missing { .. }))
        ));
        assert_eq!(once(false, None).operation_name(&FixedRequestValues(None, None)), Ok(None));
        for bad in ["", "\"", "\u{1}"] {
            assert!(
                once(false, None).operation_name(&FixedRequestValues(Some(bad), None)).is_err(),
                "{bad:?}"
            );
        }
    }

    /// An operation with a principal is not named by the header field alone.
    #[test]
    fn principal_excludes_default_header() {
        assert!(once(true, None).uses_default_header());
        assert!(!once(true, Some("{header.x-shop}")).uses_default_header());
        let other = IdempotencyRule {
            key: KeyTemplate::parse("{header.x-shop}").expect("a template"),
            ..once(true, None)
        };
        assert!(!other.uses_default_header());
    }

    /// A request with a name but without a principal is refused, even if no name is required.
    #[test]
    fn name_without_principal_is_refused() {
        let whose = once(false, Some("{header.x-shop}"));
        assert!(matches!(
            whose.operation_name(&FixedRequestValues(Some("a"), None)),
            Err(OperationNameError::Principal(ExtractKeyError::Missing { .. }))
        ));
        assert_eq!(whose.operation_name(&FixedRequestValues(None, None)), Ok(None));
    }
}
