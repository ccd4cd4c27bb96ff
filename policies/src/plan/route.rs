//! One route: the requests that it takes, its upstream, and its lock.

use std::sync::Arc;

use serde::Serialize;

use super::{
    access::{AccessRule, EffectiveAccessRule},
    body_conditions::{BodyCondition, ConditionValue},
    conditions::MatchConditions,
    fence::{EffectiveFence, FenceRule},
    reserved_fields::is_credential,
    upstream::UpstreamId,
};
use crate::{
    graphql::GraphqlOperation,
    host::HostMatcher,
    path::{CanonicalPath, PathParams, PathTemplate},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteId(pub usize);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub id: RouteId,
    pub name: Arc<str>,
    pub upstream: UpstreamId,
    /// The methods, in upper case and compared exactly. Empty means every method.
    pub methods: Vec<String>,
    pub path: PathTemplate,
    pub conditions: MatchConditions,
    pub fence: Option<FenceRule>,
    /// The rules that restrict the clients of the route. Empty means that every client may use it.
    pub allow: Vec<AccessRule>,
    /// The protocols that requests may switch to. Default none.
    pub upgrade: Vec<String>,
    /// True if some part of the route reads claims, so that the bearer token of a request must be verified.
    pub reads_token: bool,
}

impl Route {
    /// A route without a condition and without a lock, for tests of the route lookup.
    #[cfg(test)]
    pub(crate) fn unfenced_test_route(index: usize, methods: &[&str], path: &str) -> Self {
        Self {
            id: RouteId(index),
            name: format!("r{index}").into(),
            upstream: UpstreamId(0),
            methods: methods.iter().map(|method| (*method).to_owned()).collect(),
            path: PathTemplate::parse(path).expect(path),
            conditions: MatchConditions::default(),
            fence: None,
            allow: Vec::new(),
            upgrade: Vec::new(),
            reads_token: false,
        }
    }

    /// Whether the route fences its requests or restricts its clients, so that its requests must not reach the
    /// service by another route.
    pub fn is_protected(&self) -> bool {
        self.fence.is_some() || !self.allow.is_empty()
    }

    /// The values of the route's path template in `path`. The route must have been found for this path.
    pub fn bind<'a>(&'a self, path: &'a CanonicalPath) -> PathParams<'a> {
        PathParams::new(&self.path, path)
    }
}

/// A route as operators see it, with every field.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = EffectiveRoute))]
pub struct EffectiveRoute {
    pub name: String,
    pub upstream: String,
    /// Empty means every method.
    pub methods: Vec<String>,
    pub path: String,
    /// Hosts, and `*.` before a name for all hosts below it. Empty means every host.
    pub hosts: Vec<String>,
    /// The fields that a request must have, each with its value.
    pub headers: Vec<NamedConditionValue>,
    /// The parameters of the query that a request must have, each with its value.
    pub query: Vec<NamedConditionValue>,
    /// The members of a JSON body that a request must have, each with the values that count.
    pub body: Vec<EffectiveBodyCondition>,
    /// `query` or `mutation`, if the route takes requests by what they can do as GraphQL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphql: Option<&'static str>,
    /// Protocols that its requests may switch to.
    pub upgrade: Vec<String>,
    /// Who may use it. Empty means everybody.
    pub allow: Vec<EffectiveAccessRule>,
    /// Null on unfenced routes.
    pub fence: Option<EffectiveFence>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = EffectiveNamedValue))]
pub struct NamedConditionValue {
    pub name: String,
    /// Absent for a field that authenticates clients, such as `authorization`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveBodyCondition {
    /// A JSON pointer.
    pub pointer: String,
    pub values: Vec<ConditionValue>,
}

impl EffectiveRoute {
    /// `upstream_name`: the name of the route's upstream.
    pub fn new(route: &Route, upstream_name: String) -> Self {
        // The pattern has no `..`, here and in the types below, so that a new field does not compile until it is
        // shown.
        let Route {
            id: _,
            name,
            upstream: _,
            methods,
            path,
            conditions,
            fence,
            allow,
            upgrade,
            // This field follows from the others, so it is not shown.
            reads_token: _,
        } = route;
        let MatchConditions { hosts, headers, query, body, graphql } = conditions;
        let member = |BodyCondition { pointer, values }: &BodyCondition| EffectiveBodyCondition {
            pointer: pointer.to_string(),
            values: values.clone(),
        };
        Self {
            name: name.to_string(),
            upstream: upstream_name,
            methods: methods.clone(),
            path: path.to_string(),
            hosts: match hosts {
                HostMatcher::Any => Vec::new(),
                HostMatcher::Only(patterns) => patterns.iter().map(ToString::to_string).collect(),
            },
            headers: named_values(headers),
            query: named_values(query),
            body: body.iter().map(member).collect(),
            graphql: graphql.map(GraphqlOperation::as_str),
            upgrade: upgrade.clone(),
            allow: allow.iter().map(EffectiveAccessRule::new).collect(),
            fence: fence.as_ref().map(EffectiveFence::new),
        }
    }
}

fn named_values(pairs: &[(String, String)]) -> Vec<NamedConditionValue> {
    let shown = |(name, value): &(String, String)| NamedConditionValue {
        name: name.clone(),
        value: (!is_credential(name)).then(|| value.clone()),
    };
    pairs.iter().map(shown).collect()
}
