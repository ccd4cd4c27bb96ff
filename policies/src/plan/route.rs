//! One route: which requests it takes, its upstream, and its lock.

use std::sync::Arc;

use super::{conditions::MatchConditions, fence::FenceRule, upstream::UpstreamId};
use crate::path::{CanonicalPath, PathParams, PathTemplate};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteId(pub usize);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub id: RouteId,
    pub name: Arc<str>,
    pub upstream: UpstreamId,
    /// Exact, upper case; empty means every method.
    pub methods: Vec<String>,
    pub path: PathTemplate,
    pub conditions: MatchConditions,
    pub fence: Option<FenceRule>,
    /// Protocols that its requests may switch to. Default none.
    pub upgrade: Vec<String>,
}

impl Route {
    /// A route without a condition and without a lock, for tests of the route lookup.
    #[cfg(test)]
    pub(crate) fn without_fence(index: usize, methods: &[&str], path: &str) -> Self {
        Self {
            id: RouteId(index),
            name: format!("r{index}").into(),
            upstream: UpstreamId(0),
            methods: methods.iter().map(|method| (*method).to_owned()).collect(),
            path: PathTemplate::parse(path).expect(path),
            conditions: MatchConditions::default(),
            fence: None,
            upgrade: Vec::new(),
        }
    }

    /// The values that the route's path template binds in `path`. The route must have been found for this path.
    pub fn bind<'a>(&'a self, path: &'a CanonicalPath) -> PathParams<'a> {
        PathParams::new(&self.path, path)
    }
}
