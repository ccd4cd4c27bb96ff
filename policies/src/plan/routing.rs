//! Finds the route of a request: the first one in the file that takes its method, path and conditions.

use std::cell::RefCell;

use crate::path::route_trie::{RouteTrie, TrieSegment};
use crate::{
    graphql::GraphqlOperation,
    key::{
        CompleteBody, ContentDeclaration, ExtractKeyError, JsonPointer, JsonScalar, ParseBodyError,
        RequestParameterSources, RequestValues, RouteConditionBody, SourceConflictPolicy,
        compare_members_with_other_sources,
    },
    path::{CanonicalPath, PathParams},
    plan::{MatchConditions, MatchConditionsError, Route, RouteId},
};

/// All routes of a plan, in a tree, so that a lookup visits only routes that share the segments of the request.
#[derive(Debug, Clone)]
pub struct RouteTable {
    routes: Vec<Route>,
    tree: RouteTrie,
    /// A tree of the same routes with their paths in lower case. `None` if no route has an `allow`, because then it is
    /// not needed.
    lowercase: Option<RouteTrie>,
}

/// A route, and the values of its path template in the path of the request.
#[derive(Debug, Clone, Copy)]
pub struct RouteMatch<'a> {
    pub route: &'a Route,
    pub bound: PathParams<'a>,
}

/// The reason for which it is not known which route takes a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindRouteError {
    /// Readers could read a value differently on which a route depends.
    #[error(transparent)]
    Unclear(#[from] ExtractKeyError),
    /// The body decides between these routes, which are in the order in which they are tried. No other route takes the
    /// request.
    #[error("which route matches depends on the body, which was not read")]
    BodyNeeded(Vec<RouteId>),
}

impl RouteTable {
    /// Makes the table. The order of `routes` is the order in which they are tried.
    pub fn build(routes: Vec<Route>) -> Self {
        let mut tree = RouteTrie::new();
        for (index, route) in routes.iter().enumerate() {
            tree.insert(index, &route.path);
        }
        let lowercase = routes.iter().any(|route| !route.allow.is_empty()).then(|| {
            let mut tree = RouteTrie::new();
            for (index, route) in routes.iter().enumerate() {
                tree.insert(index, &route.path.to_lowercase());
            }
            tree
        });
        Self { routes, tree, lowercase }
    }

    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The route with this id.
    ///
    /// # Panics
    /// Panics if the id belongs to another plan with more routes.
    pub fn get(&self, id: RouteId) -> &Route {
        &self.routes[id.0]
    }

    /// Finds the first route that takes a request. Methods are case-sensitive: `post` is not `POST`.
    ///
    /// # Errors
    /// Returns an error if it is unclear whether a route takes the request and no route above it does, or if the body
    /// decides and `values` do not contain it.
    pub fn find<'a>(
        &'a self,
        method: &str,
        path: &'a CanonicalPath,
        values: &dyn RequestValues,
    ) -> Result<Option<RouteMatch<'a>>, FindRouteError> {
        let segments: Vec<TrieSegment> = path.segments().map(TrieSegment::Segment).collect();
        let found = self.search(&self.tree, method, &segments, values)?;
        Ok(found.map(|route| RouteMatch { route, bound: route.bind(path) }))
    }

    /// Whether some route has an `allow`, so that [`Self::find_in_lowercase`] finds routes.
    pub(super) fn has_restricted_routes(&self) -> bool {
        self.lowercase.is_some()
    }

    /// Finds the first route that takes a request if case is ignored, as some services do. `segments`: the segments of
    /// the path, in lower case. Also `None` if no route has an `allow`.
    ///
    /// # Errors
    /// The same as [`Self::find`].
    pub(super) fn find_in_lowercase(
        &self,
        method: &str,
        segments: &[&str],
        values: &dyn RequestValues,
    ) -> Result<Option<&Route>, FindRouteError> {
        let Some(tree) = &self.lowercase else { return Ok(None) };
        let segments: Vec<TrieSegment> = segments.iter().copied().map(TrieSegment::Segment).collect();
        self.search(tree, method, &segments, values)
    }

    fn search(
        &self,
        tree: &RouteTrie,
        method: &str,
        segments: &[TrieSegment],
        values: &dyn RequestValues,
    ) -> Result<Option<&Route>, FindRouteError> {
        // A path has no segments only if it does not begin with a slash.
        if segments.is_empty() {
            return Ok(None);
        }
        // The tree visits the routes in any order, so unclear and undecided routes are collected with their indices.
        let unclear: RefCell<Option<(usize, ExtractKeyError)>> = RefCell::default();
        let undecided: RefCell<Vec<usize>> = RefCell::default();
        let found = tree.find_covering(segments, |index| {
            let route = &self.routes[index];
            if !route.accepts_method(method) {
                return false;
            }
            match route.conditions.matches(values) {
                Ok(matches) => return matches,
                Err(MatchConditionsError::BodyNeeded) => undecided.borrow_mut().push(index),
                Err(MatchConditionsError::Unclear(bad)) => {
                    let earlier = unclear.take().filter(|(other, _)| *other < index);
                    unclear.replace(earlier.or(Some((index, bad))));
                }
            }
            false
        });
        let is_first = |index: usize| found.is_none_or(|found| index < found);
        let mut undecided = undecided.into_inner();
        undecided.retain(|index| is_first(*index));
        undecided.sort_unstable();
        if let Some((index, bad)) = unclear.into_inner().filter(|(index, _)| is_first(*index))
            && undecided.first().is_none_or(|first| index < *first)
        {
            return Err(bad.into());
        }
        if !undecided.is_empty() {
            let candidates = undecided.into_iter().chain(found).map(RouteId);
            return Err(FindRouteError::BodyNeeded(candidates.collect()));
        }
        Ok(found.map(|found| &self.routes[found]))
    }

    /// Reads a body for the conditions of these routes.
    ///
    /// `query`: the query of the URL.
    ///
    /// # Errors
    /// Returns an error if another reader could take other values from the body, or if it is no JSON object.
    pub fn read_body(
        &self,
        candidates: &[RouteId],
        declaration: &ContentDeclaration<'_>,
        bytes: &[u8],
        query: Option<&str>,
    ) -> Result<RouteConditionBody, ParseBodyError> {
        declaration.require_json()?;
        let conditions = || candidates.iter().map(|id| &self.get(*id).conditions);
        let reads_graphql = conditions().any(|conditions| conditions.graphql.is_some());
        let pointers: Vec<JsonPointer> = conditions().flat_map(compared_members).collect();
        RouteConditionBody::parse(bytes, query, pointers.iter(), reads_graphql)
    }

    /// Compares the members of a body that decide between these routes with the other sources of the request. The
    /// sources are those that the fences of the routes compare with their keys, or all sources if no route has a fence.
    ///
    /// # Errors
    /// Returns an error if the service may read another value than the one by which the route is found.
    pub fn compare_body_sources(
        &self,
        candidates: &[RouteId],
        body: &RouteConditionBody,
        content: CompleteBody<'_>,
        path: &CanonicalPath,
        cookies: &[&[u8]],
        values: &dyn RequestValues,
    ) -> Result<(), ExtractKeyError> {
        let routes = || candidates.iter().map(|id| self.get(*id));
        let mut policies: Vec<&SourceConflictPolicy> = Vec::new();
        for fence in routes().filter_map(|route| route.fence.as_ref()) {
            if !policies.contains(&&fence.conflicts) {
                policies.push(&fence.conflicts);
            }
        }
        if policies.is_empty() {
            policies.push(&SourceConflictPolicy::RefuseAny);
        }
        let text = |pointer: &JsonPointer| match body.value_at(pointer) {
            Some(JsonScalar::Text(text) | JsonScalar::Integer(text)) => Some(text.clone()),
            Some(JsonScalar::Boolean(value)) => Some(value.to_string()),
            None | Some(JsonScalar::Null | JsonScalar::Unfit(_)) => None,
        };
        for route in routes() {
            let bound = route.bind(path);
            let path: Vec<_> = bound.variables().collect();
            let sent = RequestParameterSources { path: &path, cookies, content: Some(content) };
            // The document is not compared with the rest of the body: variables in it may have a member of the same
            // name, which is no second document.
            let beside_body = RequestParameterSources { content: None, ..sent };
            let document = graphql_document_pointer(&route.conditions);
            for policy in &policies {
                let members = route.conditions.body.iter().map(|member| &member.pointer);
                let members = members.map(|pointer| (pointer, text(pointer)));
                compare_members_with_other_sources(members, policy, values, &sent)?;
                let document = document.iter().map(|pointer| (pointer, text(pointer)));
                compare_members_with_other_sources(document, policy, values, &beside_body)?;
            }
        }
        Ok(())
    }
}

/// The pointers to the members of a body that these conditions depend on.
fn compared_members(conditions: &MatchConditions) -> impl Iterator<Item = JsonPointer> {
    conditions.body.iter().map(|member| member.pointer.clone()).chain(graphql_document_pointer(conditions))
}

/// The pointer to the GraphQL document, if these conditions depend on it.
fn graphql_document_pointer(conditions: &MatchConditions) -> Option<JsonPointer> {
    let document = conditions.graphql.map(|_| GraphqlOperation::DOCUMENT);
    document.map(|pointer| JsonPointer::parse(pointer).expect("a pointer"))
}

impl Route {
    /// Whether the route takes this method. An empty list of methods means every method.
    pub(crate) fn accepts_method(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|ours| ours == method)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::path::PathTemplate;

    fn table(routes: &[(&[&str], &str)]) -> RouteTable {
        let route = |(index, (methods, path)): (usize, &(&[&str], &str))| {
            Route::unfenced_test_route(index, methods, path)
        };
        RouteTable::build(routes.iter().enumerate().map(route).collect())
    }

    fn find_index(table: &RouteTable, method: &str, path: &str) -> Option<usize> {
        let path = CanonicalPath::parse(path);
        table.find(method, &path, &()).expect("no conditions").map(|found| found.route.id.0)
    }

    #[test]
    fn first_matching_route_wins() {
        let table = table(&[
            (&["POST"], "/v1/orders/{id}/capture"),
            (&["GET", "HEAD"], "/v1/{rest...}"),
            (&[], "/v1/orders/{id}"),
            (&["POST"], "/{rest...}"),
        ]);
        for (method, path, route) in [
            ("POST", "/v1/orders/42/capture", Some(0)),
            ("GET", "/v1/orders/42/capture", Some(1)),
            ("GET", "/v1/orders/42", Some(1)),
            ("DELETE", "/v1/orders/42", Some(2)),
            ("POST", "/v1/orders/42/", Some(3)),
            ("post", "/v1/orders/42/capture", None),
            ("DELETE", "/", None),
            ("POST", "/", Some(3)),
            ("POST", "*", None),
            ("GET", "/v1", None),
        ] {
            assert_eq!(find_index(&table, method, path), route, "{method} {path}");
        }
    }

    /// A wide route takes its requests before a narrow route below it.
    #[test]
    fn wide_route_above_wins() {
        let table = table(&[(&["GET"], "/{a}/x"), (&[], "/v1/x"), (&[], "/v1/{b}")]);
        assert_eq!(find_index(&table, "GET", "/v1/x"), Some(0));
        assert_eq!(find_index(&table, "PUT", "/v1/x"), Some(1));
        assert_eq!(find_index(&table, "PUT", "/v1/y"), Some(2));
    }

    #[test]
    fn route_binds_variables_of_template() {
        let table = table(&[(&[], "/a/{x}"), (&[], "/{y}/{z}")]);
        let path = CanonicalPath::parse("/b/%40");
        let found = table.find("GET", &path, &()).expect("no conditions").expect("the second route");
        assert_eq!((found.bound.get("y"), found.bound.get("z")), (Some("b"), Some("@")));
        assert_eq!(found.bound.get("x"), None);
    }

    #[test]
    fn empty_table_finds_nothing() {
        assert_eq!(find_index(&table(&[]), "GET", "/"), None);
    }

    prop_compose! {
        fn any_template()(
            pieces in proptest::collection::vec("[abc]|\\{v\\}|\\{v\\}(:a|:b|\\.a|\\{\\.f\\?\\})|a\\{v\\}", 0..4),
            end in prop_oneof![Just(""), Just("/"), Just("/{rest...}")],
        ) -> String {
            let mut text = String::new();
            for (index, piece) in pieces.iter().enumerate() {
                text.push('/');
                text.push_str(&piece.replace('v', &format!("v{index}")));
            }
            text.push_str(end);
            if text.is_empty() { "/".into() } else { text }
        }
    }

    proptest! {
        /// The tree finds the same route as a search of every route.
        #[test]
        fn tree_agrees_with_linear_search(
            routes in proptest::collection::vec((any_template(), proptest::sample::subsequence(vec!["GET", "PUT"], 0..=2)), 0..40),
            paths in proptest::collection::vec("(/([abcd]|a?[ab](:[ab]|\\.[ab]|\\.a\\.b|\\.))){0,4}/?", 1..40),
        ) {
            let rows: Vec<(&[&str], &str)> =
                routes.iter().map(|(path, methods)| (methods.as_slice(), path.as_str())).collect();
            let table = table(&rows);
            for path in &paths {
                let canonical = CanonicalPath::parse(path);
                for method in ["GET", "PUT", "POST"] {
                    let scan = table.routes().iter().find(|route| route.accepts_method(method) && route.path.matches(&canonical));
                    prop_assert_eq!(find_index(&table, method, path), scan.map(|route| route.id.0), "{} {}", method, path);
                }
            }
        }

        /// The tree finds the first template that covers or overlaps another one, on which the searches for unreachable
        /// routes and for bypasses rely.
        #[test]
        fn tree_finds_covering_or_overlapping_template(
            templates in proptest::collection::vec(any_template(), 0..30),
            sought in any_template(),
            skipped in 0..5_usize,
        ) {
            let parse = |text: &String| PathTemplate::parse(text).expect("made");
            let templates = templates.iter().map(parse).collect::<Vec<_>>();
            let sought = parse(&sought);
            let mut tree = RouteTrie::new();
            for (index, template) in templates.iter().enumerate() {
                tree.insert(index, template);
            }
            let parts: Vec<TrieSegment> = sought.pieces().iter().map(TrieSegment::from).collect();
            let takes = |index: usize| index % 5 != skipped;
            let scan = |found: &dyn Fn(&PathTemplate) -> bool| {
                (0..templates.len()).find(|index| takes(*index) && found(&templates[*index]))
            };
            prop_assert_eq!(tree.find_covering(&parts, takes), scan(&|one| one.covers(&sought)));
            prop_assert_eq!(tree.find_overlapping(&parts, takes), scan(&|one| one.overlaps(&sought)));
        }

        /// Two templates overlap if some path matches both.
        #[test]
        fn templates_overlap_in_common_path(one in any_template(), other in any_template(), path in "(/([abcd]|a?[ab](:[ab]|\\.[ab]|\\.a\\.b|\\.))){0,4}/?") {
            let one = PathTemplate::parse(&one).expect("made");
            let other = PathTemplate::parse(&other).expect("made");
            let path = CanonicalPath::parse(&path);
            prop_assert!(one.overlaps(&other) || !one.matches(&path) || !other.matches(&path));
        }

        /// If one template covers another one, it matches every path that the other one matches.
        #[test]
        fn cover_matches_what_template_matches(one in any_template(), other in any_template(), path in "(/([abcd]|a?[ab](:[ab]|\\.[ab]|\\.a\\.b|\\.))){0,4}/?") {
            let one = PathTemplate::parse(&one).expect("made");
            let other = PathTemplate::parse(&other).expect("made");
            let path = CanonicalPath::parse(&path);
            prop_assert!(!one.covers(&other) || !other.matches(&path) || one.matches(&path));
        }
    }
}
