//! The served traffic of a process, and its upstreams: the part of a plan that gateway and guard share.

use super::route::Route;
use super::routing::{FindRouteError, RouteMatch, RouteTable};
use super::{
    admin::AdminListenerSettings,
    fence::FenceRule,
    listener::ListenerSettings,
    log::LogSettings,
    reserved_fields::ReservedHeaderNames,
    upstream::{Upstream, UpstreamId},
};
use crate::{
    key::{ParseKeyError, RequestValues, ResourceKey, check_spelling},
    path::CanonicalPath,
};

/// The served traffic of a process, and its upstreams: the part of a plan that gateway and guard share.
#[derive(Debug, Clone)]
pub struct ServingPlan {
    /// The name of the process in logs and in its member node. Default: the host name.
    pub name: Option<String>,
    pub listener: ListenerSettings,
    pub admin: AdminListenerSettings,
    pub upstreams: Vec<Upstream>,
    pub routes: RouteTable,
    pub unmatched: UnmatchedPolicy,
    pub fields: ReservedHeaderNames,
    pub log: LogSettings,
}

impl ServingPlan {
    pub fn upstream(&self, id: UpstreamId) -> &Upstream {
        &self.upstreams[id.0]
    }

    /// True for a request that goes to `upstream` without a lock, although some services read its path as one that a route of the
    /// same service fences: Rails takes a suffix such as `.json` off the last segment, and others take dots off the end of
    /// any segment. A route that writes the suffix out means what it says.
    pub fn is_fenced_path_with_suffix(
        &self,
        method: &str,
        path: &CanonicalPath,
        values: &dyn RequestValues,
        found: Option<&RouteMatch<'_>>,
        upstream: UpstreamId,
    ) -> bool {
        if found.is_some_and(|found| found.route.fence.is_some()) || !path.as_str().contains('.') {
            return false;
        }
        let service = self.upstream(upstream).service.id;
        let is_fenced = |path: String| {
            let path = CanonicalPath::parse(&path);
            if path.ambiguity().is_some() {
                return false;
            }
            let fences =
                |route: &Route| route.fence.is_some() && self.upstream(route.upstream).service.id == service;
            match self.routes.find(method, &path, values) {
                Ok(found) => found.is_some_and(|RouteMatch { route, .. }| fences(route)),
                Err(FindRouteError::BodyNeeded(candidates)) => {
                    candidates.iter().any(|id| fences(self.routes.get(*id)))
                }
                // Which route it would be is not clear, and it may be the fenced one.
                Err(FindRouteError::Unclear(_)) => true,
            }
        };
        let without_dots: Vec<&str> =
            path.as_str().split('/').map(|segment| segment.trim_end_matches('.')).collect();
        let without_dots = without_dots.join("/");
        if without_dots != path.as_str() && is_fenced(without_dots.clone()) {
            return true;
        }
        if found.is_some_and(|found| found.route.path.ends_in_literal()) {
            return false;
        }
        let last = without_dots.rfind('/').unwrap_or_default();
        without_dots[last..].rfind('.').is_some_and(|dot| is_fenced(without_dots[..last + dot].to_owned()))
    }

    /// Reads a key that a job or a client of leases wants to lock.
    ///
    /// # Errors
    /// It is no key, or no request has a key in this spelling; then the error has the right spelling.
    pub fn parse_key(&self, text: &str) -> Result<ResourceKey, ParseKeyError> {
        let key = ResourceKey::parse_user_input(text)?;
        let fences = self.routes.routes().iter().filter_map(|route| route.fence.as_ref());
        check_spelling(&key, fences.flat_map(FenceRule::templates))?;
        Ok(key)
    }
}

/// What happens to a request that matches no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmatchedPolicy {
    Reject,
    /// The request is forwarded without a lock.
    Pass(UpstreamId),
}
