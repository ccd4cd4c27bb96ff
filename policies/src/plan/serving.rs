//! The served traffic of a process, and its upstreams: the part of a plan that gateway and guard share.

use super::routing::{FindRouteError, RouteMatch, RouteTable};
use super::{
    admin::AdminListenerSettings,
    fence::FenceRule,
    jwt::JwtSettings,
    listener::ListenerSettings,
    log::LogSettings,
    reserved_fields::ReservedHeaderNames,
    route::Route,
    upstream::{Upstream, UpstreamId},
};
use crate::{
    key::{ParseKeyError, RequestValues, ResourceKey, check_spelling},
    path::{CanonicalPath, WrittenSuffix},
};

/// The most dots in the last segment of a path at which a suffix is looked for. Each of them costs a search for a route, and
/// with more the path counts as one of a protected route.
const MOST_DOTS: usize = 32;

/// The served traffic of a process, and its upstreams: the part of a plan that gateway and guard share.
#[derive(Debug, Clone)]
pub struct ServingPlan {
    /// The name of the process in logs and in its member node. Default: the host name.
    pub name: Option<String>,
    pub listener: ListenerSettings,
    /// The bearer tokens that the listener verifies.
    pub jwt: JwtSettings,
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

    /// True for a request to `upstream` whose path some services read as one of a protected route of the same service, other than the
    /// route that was found here: Rails and Spring before 5.3 take a suffix such as `.json` off the last segment, and others take
    /// dots off the end of any segment. The request would run without the lock and the `allow` of that route, or under others.
    ///
    /// The route that was found takes a suffix of its own requests: its key says what the suffix means. A route that writes
    /// the suffix out means what it says, unless its variable then has the text of a segment that the other route writes out.
    pub fn is_protected_path_with_suffix(
        &self,
        method: &str,
        path: &CanonicalPath,
        values: &dyn RequestValues,
        found: Option<&RouteMatch<'_>>,
        upstream: UpstreamId,
    ) -> bool {
        if !path.as_str().contains('.') {
            return false;
        }
        let service = self.upstream(upstream).service.id;
        let own = found.map(|found| found.route);
        let protects_elsewhere = |route: &Route| {
            route.is_protected()
                && self.upstream(route.upstream).service.id == service
                && own.is_none_or(|own| own.id != route.id)
        };
        let is_other_protected = |path: &str, counts: &dyn Fn(&Route) -> bool| {
            let path = CanonicalPath::parse(path);
            if path.ambiguity().is_some() {
                return false;
            }
            match self.routes.find(method, &path, values) {
                Ok(other) => {
                    other.is_some_and(|RouteMatch { route, .. }| protects_elsewhere(route) && counts(route))
                }
                Err(FindRouteError::BodyNeeded(candidates)) => {
                    let mut routes = candidates.iter().map(|id| self.routes.get(*id));
                    routes.any(|route| protects_elsewhere(route) && counts(route))
                }
                // Which route it would be is not clear, and it may be the protected one.
                Err(FindRouteError::Unclear(_)) => true,
            }
        };
        let without_dots: Vec<&str> =
            path.as_str().split('/').map(|segment| segment.trim_end_matches('.')).collect();
        let without_dots = without_dots.join("/");
        if without_dots != path.as_str() && is_other_protected(&without_dots, &|_| true) {
            return true;
        }
        let writes_suffix = own.map(|own| own.path.written_suffix());
        if writes_suffix == Some(WrittenSuffix::Whole) {
            return false;
        }
        let counts = |other: &Route| {
            writes_suffix != Some(WrittenSuffix::BehindVariable)
                || other.path.written_suffix() == WrittenSuffix::Whole
        };
        let last = without_dots.rfind('/').unwrap_or_default();
        // Rails takes the last dot for the beginning of the suffix, and Spring any of them.
        let mut dots = without_dots[last..].match_indices('.').map(|(dot, _)| last + dot);
        if dots.clone().count() > MOST_DOTS {
            return self.routes.routes().iter().any(protects_elsewhere);
        }
        dots.any(|dot| is_other_protected(&without_dots[..dot], &counts))
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
