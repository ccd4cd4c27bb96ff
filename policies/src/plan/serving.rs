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
    path::{CanonicalPath, LiteralPathSuffix},
};

/// The most dots in the last segment of a path at which a suffix is looked for, because each dot costs a route lookup.
/// A path with more dots counts as one of a protected route.
const MOST_DOTS: usize = 32;

/// The served traffic of a process, and its upstreams: the part of a plan that gateway and guard share.
#[derive(Debug, Clone)]
pub struct CommonServingPlan {
    /// The name of the process in logs and in its member node. Default: the host name.
    pub name: Option<String>,
    pub listener: ListenerSettings,
    /// The bearer tokens that the listener verifies.
    pub jwt: JwtSettings,
    pub admin: AdminListenerSettings,
    pub upstreams: Vec<Upstream>,
    pub routes: RouteTable,
    pub unmatched: UnmatchedRequestPolicy,
    pub fields: ReservedHeaderNames,
    pub log: LogSettings,
}

impl CommonServingPlan {
    pub fn upstream(&self, id: UpstreamId) -> &Upstream {
        &self.upstreams[id.0]
    }

    /// The way in which some services read a request to `upstream` as one of a protected route other than the route
    /// that was found; `None` if no service does. Such a request would run without the lock and the `allow` of the
    /// protected route, or under those of another route.
    pub fn find_alternate_reading(
        &self,
        method: &str,
        path: &CanonicalPath,
        values: &dyn RequestValues,
        found: Option<&RouteMatch<'_>>,
        upstream: UpstreamId,
    ) -> Option<AlternateRequestReading> {
        if self.is_protected_path_with_suffix(method, path, values, found, upstream) {
            return Some(AlternateRequestReading::Suffix);
        }
        self.find_restricted_reading(method, path, values, found.map(|found| found.route), upstream)
    }

    /// The way in which some services read a request as one of a route with another `allow`: by ignoring case or a
    /// trailing slash, or by handling `HEAD` like `GET` (RFC 9110, section 9.3.2), also in combination and with a
    /// suffix.
    ///
    /// Fences are not considered: a `HEAD` changes nothing, and `fencegate check` warns of the spellings.
    ///
    /// A route that writes out the segments of the other one, or that names `HEAD`, is taken for intended.
    fn find_restricted_reading(
        &self,
        method: &str,
        path: &CanonicalPath,
        values: &dyn RequestValues,
        own: Option<&Route>,
        upstream: UpstreamId,
    ) -> Option<AlternateRequestReading> {
        if !self.routes.has_restricted_routes() || path.ambiguity().is_some() {
            return None;
        }
        let service = self.upstream(upstream).service.id;
        let own_rules = own.map_or(&[][..], |own| &own.allow[..]);
        let is_restricted = |other: &Route| {
            !other.allow.is_empty()
                && other.allow != own_rules
                && self.upstream(other.upstream).service.id == service
        };
        let is_read_as_restricted = |segments: &[&str], as_method: &str| {
            let is_other_restricted = |other: &Route| {
                is_restricted(other)
                    && own.is_none_or(|own| {
                        let is_named = as_method == method || own.methods.iter().any(|named| named == method);
                        !is_named || !own.path.writes_segments_of(&other.path)
                    })
            };
            match self.routes.find_in_lowercase(as_method, segments, values) {
                Ok(other) => other.is_some_and(is_other_restricted),
                Err(FindRouteError::BodyNeeded(candidates)) => {
                    candidates.iter().any(|id| is_other_restricted(self.routes.get(*id)))
                }
                // It is not clear which route the other reading has, and it may be the restricted one.
                Err(FindRouteError::Unclear(_)) => true,
            }
        };
        let segments: Vec<String> = path.segments().map(fold_to_ascii).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        if method == "HEAD" && is_read_as_restricted(&segments, "GET") {
            return Some(AlternateRequestReading::Get);
        }
        let methods = if method == "HEAD" { &["HEAD", "GET"][..] } else { &[method] };
        let is_read =
            |segments: &[&str]| methods.iter().any(|method| is_read_as_restricted(segments, method));
        let slashed: Vec<&str> = segments.iter().copied().chain([""]).collect();
        let bare = segments.strip_suffix(&[""]).filter(|bare| !bare.is_empty());
        // The path `/` cannot lose its slash, and no path has two slashes at its end.
        let other_end = bare.or((segments.last() != Some(&"")).then_some(&slashed[..]));
        for segments in [Some(&segments[..]), other_end].into_iter().flatten() {
            if is_read(segments) {
                return Some(AlternateRequestReading::Spelling);
            }
            let mut without_dots: Vec<&str> =
                segments.iter().map(|segment| segment.trim_end_matches('.')).collect();
            if without_dots != segments && is_read(&without_dots) {
                return Some(AlternateRequestReading::Suffix);
            }
            let last = without_dots.pop().unwrap_or_default();
            let dots = last.match_indices('.').map(|(dot, _)| dot);
            if dots.clone().count() > MOST_DOTS {
                return self
                    .routes
                    .routes()
                    .iter()
                    .any(is_restricted)
                    .then_some(AlternateRequestReading::Suffix);
            }
            for dot in dots {
                without_dots.push(&last[..dot]);
                if is_read(&without_dots) {
                    return Some(AlternateRequestReading::Suffix);
                }
                without_dots.pop();
            }
        }
        None
    }

    /// Whether some services read the path of a request to `upstream` as one of a protected route other than the route
    /// that was found. Rails and Spring before 5.3 remove a suffix such as `.json` from the last segment, and others
    /// remove dots from the end of any segment. The request would run without the lock and the `allow` of the protected
    /// route, or under those of another route.
    ///
    /// A suffix that leads back to the found route is allowed, because the key of that route defines its meaning. A
    /// route that writes the suffix out is taken for intended, unless its variable could have the text of a segment
    /// that the other route writes out.
    fn is_protected_path_with_suffix(
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
                // It is not clear which route the other reading has, and it may be the protected one.
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
        if writes_suffix == Some(LiteralPathSuffix::Whole) {
            return false;
        }
        let counts = |other: &Route| {
            writes_suffix != Some(LiteralPathSuffix::BehindVariable)
                || other.path.written_suffix() == LiteralPathSuffix::Whole
        };
        let last = without_dots.rfind('/').unwrap_or_default();
        // For Rails the suffix begins at the last dot, and for Spring at any dot.
        let mut dots = without_dots[last..].match_indices('.').map(|(dot, _)| last + dot);
        if dots.clone().count() > MOST_DOTS {
            return self.routes.routes().iter().any(protects_elsewhere);
        }
        dots.any(|dot| is_other_protected(&without_dots[..dot], &counts))
    }

    /// Reads a key that a job or a client of leases wants to lock.
    ///
    /// # Errors
    /// Returns an error if the text is no key, or if no request has a key in this spelling; the error then has the
    /// right spelling.
    pub fn parse_key(&self, text: &str) -> Result<ResourceKey, ParseKeyError> {
        let key = ResourceKey::parse_user_input(text)?;
        let fences = self.routes.routes().iter().filter_map(|route| route.fence.as_ref());
        check_spelling(&key, fences.flat_map(FenceRule::templates))?;
        Ok(key)
    }
}

/// The text in lower case, with the four letters beyond ASCII replaced that some case-insensitive comparisons take for
/// ASCII letters: Python takes `\u{17f}` for `s` and `\u{212a}` for `k`, and Java takes `\u{131}` and `\u{130}` for
/// `i`. Templates are in ASCII.
fn fold_to_ascii(segment: &str) -> String {
    let fold = |char: char| match char {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        '\u{130}' | '\u{131}' => 'i',
        other => other.to_ascii_lowercase(),
    };
    segment.chars().map(fold).collect()
}

/// The reading by which a request belongs to a protected route of its service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlternateRequestReading {
    /// The request belongs to the protected route without a suffix of its path, or without dots at the end of a
    /// segment.
    Suffix,
    /// The request belongs to the protected route in another case, or with or without a trailing slash.
    Spelling,
    /// The request belongs to the protected route if `HEAD` is handled like `GET`.
    Get,
}

/// The treatment of a request that matches no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmatchedRequestPolicy {
    Reject,
    /// The request is forwarded without a lock.
    Pass(UpstreamId),
}
