//! Finds the route of a request: the first one, top to bottom, that takes its method and path.

use std::collections::HashMap;

use crate::{
    path::{Bound, CanonicalPath, PathTemplate, Piece},
    plan::{Route, RouteId},
};

/// All routes of a plan, arranged as a tree of path segments: a request looks at the few routes that share its
/// segments, not at all of them.
#[derive(Debug, Clone)]
pub struct RouteTable {
    routes: Vec<Route>,
    /// The first node is the root.
    nodes: Vec<Node>,
}

/// A route and what its path template binds in the path it was found for.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    pub route: &'a Route,
    pub bound: Bound<'a>,
}

#[derive(Debug, Clone)]
struct Node {
    literals: HashMap<Box<str>, usize>,
    variable: Option<usize>,
    /// Routes whose template ends here, first to last.
    ends: Vec<usize>,
    /// Routes that take whatever follows, first to last.
    rests: Vec<usize>,
    /// The first route at or below this node: a search that has found an earlier one need not enter.
    least: usize,
}

/// One lookup on its way through the tree.
struct Search<'a> {
    table: &'a RouteTable,
    method: &'a str,
    segments: Vec<&'a str>,
    /// The earliest route found so far; `usize::MAX` before the first.
    best: usize,
}

impl RouteTable {
    /// Keeps the order of `routes`, which is the order in which they are tried.
    pub fn build(routes: Vec<Route>) -> Self {
        let mut table = Self { routes: Vec::new(), nodes: vec![Node::starting_with(0)] };
        for (index, route) in routes.iter().enumerate() {
            table.insert(index, &route.path);
        }
        Self { routes, ..table }
    }

    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// # Panics
    /// The id is of another plan.
    pub fn get(&self, id: RouteId) -> &Route {
        &self.routes[id.0]
    }

    /// Methods compare exactly: `post` is not `POST`.
    pub fn find<'a>(&'a self, method: &str, path: &'a CanonicalPath) -> Option<Found<'a>> {
        let segments: Vec<&str> = path.segments().collect();
        // Only a path without a leading slash has no segment at all.
        if segments.is_empty() {
            return None;
        }
        let mut search = Search { table: self, method, segments, best: usize::MAX };
        search.visit(0, 0);
        let route = self.routes.get(search.best)?;
        Some(Found { route, bound: route.bind(path) })
    }

    fn insert(&mut self, index: usize, path: &PathTemplate) {
        let mut at = 0;
        for piece in path.pieces() {
            at = match piece {
                Piece::Literal(literal) => self.child(at, Some(literal), index),
                Piece::Variable(_) => self.child(at, None, index),
                Piece::Rest(_) => return self.nodes[at].rests.push(index),
            };
        }
        self.nodes[at].ends.push(index);
    }

    /// The node below `at` for a literal, or for a variable; made for route `index` where there is none.
    fn child(&mut self, at: usize, literal: Option<&str>, index: usize) -> usize {
        let new = self.nodes.len();
        let node = &mut self.nodes[at];
        let child = match literal {
            Some(literal) => *node.literals.entry(literal.into()).or_insert(new),
            None => *node.variable.get_or_insert(new),
        };
        if child == new {
            self.nodes.push(Node::starting_with(index));
        }
        child
    }
}

impl Node {
    /// Routes are inserted first to last, so the one that makes a node stays the least below it.
    fn starting_with(least: usize) -> Self {
        Self { literals: HashMap::new(), variable: None, ends: Vec::new(), rests: Vec::new(), least }
    }
}

impl Search<'_> {
    fn visit(&mut self, at: usize, depth: usize) {
        let table = self.table;
        let node = &table.nodes[at];
        if node.least >= self.best {
            return;
        }
        let Some(segment) = self.segments.get(depth).copied() else {
            return self.offer(&node.ends);
        };
        self.offer(&node.rests);
        if let Some(child) = node.literals.get(segment) {
            self.visit(*child, depth + 1);
        }
        if let Some(child) = node.variable
            && !segment.is_empty()
        {
            self.visit(child, depth + 1);
        }
    }

    fn offer(&mut self, routes: &[usize]) {
        let earlier = routes.iter().copied().take_while(|index| *index < self.best);
        let takes = |index: &usize| self.table.routes[*index].takes(self.method);
        if let Some(index) = earlier.into_iter().find(takes) {
            self.best = index;
        }
    }
}

impl Route {
    /// No methods written means every method.
    pub(crate) fn takes(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|ours| ours == method)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::UpstreamId;

    fn table(routes: &[(&[&str], &str)]) -> RouteTable {
        let route = |(index, (methods, path)): (usize, &(&[&str], &str))| Route {
            id: RouteId(index),
            name: format!("r{index}").into(),
            upstream: UpstreamId(0),
            methods: methods.iter().map(|method| (*method).to_owned()).collect(),
            path: PathTemplate::parse(path).expect(path),
            fence: None,
            upgrade: Vec::new(),
        };
        RouteTable::build(routes.iter().enumerate().map(route).collect())
    }

    fn found(table: &RouteTable, method: &str, path: &str) -> Option<usize> {
        table.find(method, &CanonicalPath::parse(path)).map(|found| found.route.id.0)
    }

    #[test]
    fn the_first_route_that_matches_wins() {
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
            assert_eq!(found(&table, method, path), route, "{method} {path}");
        }
    }

    #[test]
    fn a_wide_route_above_wins_over_a_narrow_one_below() {
        let table = table(&[(&["GET"], "/{a}/x"), (&[], "/v1/x"), (&[], "/v1/{b}")]);
        assert_eq!(found(&table, "GET", "/v1/x"), Some(0));
        assert_eq!(found(&table, "PUT", "/v1/x"), Some(1));
        assert_eq!(found(&table, "PUT", "/v1/y"), Some(2));
    }

    #[test]
    fn the_route_binds_what_its_template_names() {
        let table = table(&[(&[], "/a/{x}"), (&[], "/{y}/{z}")]);
        let path = CanonicalPath::parse("/b/%40");
        let found = table.find("GET", &path).expect("the second route");
        assert_eq!((found.bound.get("y"), found.bound.get("z")), (Some("b"), Some("@")));
        assert_eq!(found.bound.get("x"), None);
    }

    #[test]
    fn an_empty_table_finds_nothing() {
        assert_eq!(found(&table(&[]), "GET", "/"), None);
    }

    prop_compose! {
        fn any_template()(
            pieces in proptest::collection::vec("[abc]|\\{v\\}", 0..4),
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
        #[test]
        fn the_tree_finds_what_trying_each_route_finds(
            routes in proptest::collection::vec((any_template(), proptest::sample::subsequence(vec!["GET", "PUT"], 0..=2)), 0..40),
            paths in proptest::collection::vec("(/[abcd]){0,4}/?", 1..40),
        ) {
            let rows: Vec<(&[&str], &str)> =
                routes.iter().map(|(path, methods)| (methods.as_slice(), path.as_str())).collect();
            let table = table(&rows);
            for path in &paths {
                let canonical = CanonicalPath::parse(path);
                for method in ["GET", "PUT", "POST"] {
                    let scan = table.routes().iter().find(|route| route.takes(method) && route.path.matches(&canonical));
                    prop_assert_eq!(found(&table, method, path), scan.map(|route| route.id.0), "{} {}", method, path);
                }
            }
        }

        /// The check for unreachable routes rests on this.
        #[test]
        fn what_a_template_matches_its_cover_matches(one in any_template(), other in any_template(), path in "(/[abcd]){0,4}/?") {
            let (one, other) = (PathTemplate::parse(&one).expect("made"), PathTemplate::parse(&other).expect("made"));
            let path = CanonicalPath::parse(&path);
            prop_assert!(!one.covers(&other) || !other.matches(&path) || one.matches(&path));
        }
    }
}
