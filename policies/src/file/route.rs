//! Reads the routes, and finds those that no request can ever take.

use std::{collections::HashSet, sync::Arc};

use super::{
    Faults,
    block::Block,
    fence::{self, Terms},
    key::Naming,
    scalar,
    upstream::Upstreams,
    yaml::{Node, Value},
};
use crate::{
    diagnose::{Code, Diagnostic, Place},
    key::is_token,
    path::PathTemplate,
    plan::{Fence, Route, RouteId, UpstreamId},
};

/// A route as far as it could be read.
pub(super) struct Written {
    name: Option<Arc<str>>,
    upstream: Option<UpstreamId>,
    matching: Option<Matching>,
    /// `Some(None)` is a route without a fence.
    fence: Option<Option<Fence>>,
}

struct Matching {
    /// Empty for all.
    methods: Vec<String>,
    path: PathTemplate,
    place: Place,
}

impl Written {
    pub(super) fn into_route(self, id: RouteId) -> Option<Route> {
        let Matching { methods, path, .. } = self.matching?;
        Some(Route { id, name: self.name?, upstream: self.upstream?, methods, path, fence: self.fence? })
    }

    pub(super) fn fenced_upstream(&self) -> Option<UpstreamId> {
        matches!(self.fence, Some(Some(_))).then_some(self.upstream).flatten()
    }
}

/// In the order of the file.
pub(super) fn routes(policy: &mut Block, upstreams: &Upstreams, defaults: &Terms) -> Vec<Written> {
    let faults = policy.faults();
    let reserved = upstreams.reserved_fields();
    let mut names = HashSet::new();
    let read = |node| {
        let read = |block: &mut Block| {
            let name = name(block, &mut names);
            let upstream = upstreams.named(block, "upstream");
            let matching = matching(block);
            let path = matching.as_ref().map(|matching| &matching.path);
            let naming = Naming { route: block.what().to_owned(), path, reserved: &reserved };
            let fence = fence::fence(block, &naming, defaults);
            Written { name, upstream, matching, fence }
        };
        Block::read(Some(node), title(node), node.place, faults, read)
    };
    let routes: Vec<Written> = policy.list("routes").unwrap_or_default().iter().filter_map(read).collect();
    unreachable(&routes, faults);
    routes
}

/// What messages call a route.
fn title(node: &Node) -> String {
    let Value::Mapping(entries) = &node.value else { return "a route".into() };
    match entries.iter().find(|(key, _)| key.text == "name").map(|(_, node)| &node.value) {
        Some(Value::Scalar(name)) => format!("route `{}`", name.text),
        _ => "a route".into(),
    }
}

fn name(block: &mut Block, names: &mut HashSet<String>) -> Option<Arc<str>> {
    block.require("name", "name: <a name>");
    let name = block.value("name", scalar::name)?;
    if !names.insert(name.clone()) {
        let fault = Diagnostic::new(Code::DuplicateRoute, format!("there is another route `{name}` above"));
        block.fault("name", fault.remedy("logs and metrics need one name per route"));
    }
    Some(name.into())
}

fn matching(route: &mut Block) -> Option<Matching> {
    route.require("match", "match: {methods: [POST], path: \"/v1/orders/{order_id}\"}");
    if !route.is_present("match") {
        return None;
    }
    let read = |block: &mut Block| {
        let methods = methods(block);
        block.require("path", "path: \"/{rest...}\"");
        let path = path(block);
        Some(Matching { methods: methods?, path: path?, place: block.place_of("path") })
    };
    route.inner("match", read).flatten()
}

fn methods(block: &mut Block) -> Option<Vec<String>> {
    if !block.is_present("methods") {
        return Some(Vec::new());
    }
    let faults = block.faults();
    let written = block.scalars("methods")?;
    if written.is_empty() {
        let fault = Diagnostic::new(Code::BadMethod, "a route without a method takes no request");
        block.fault("methods", fault.remedy("leave `methods` out to take them all"));
    }
    for scalar in &written {
        if let Err(fault) = check_method(&scalar.text) {
            faults.push(fault.at(scalar.place));
        }
    }
    Some(written.iter().map(|scalar| scalar.text.clone()).collect())
}

/// Methods compare exactly, and all that are registered are upper case.
fn check_method(text: &str) -> Result<(), Diagnostic> {
    let upper = text.to_ascii_uppercase();
    if is_token(text) && text == upper {
        return Ok(());
    }
    let fault = Diagnostic::new(Code::BadMethod, format!("`{text}` is not a method"));
    Err(match is_token(text) {
        true => fault.remedy(format!("did you mean `{upper}`?")),
        false => fault.remedy("a method is one upper-case word, such as `GET`"),
    })
}

fn path(block: &mut Block) -> Option<PathTemplate> {
    let scalar = block.scalar("path")?;
    PathTemplate::parse(&scalar.text)
        .map_err(|bad| {
            let place = scalar.part(bad.at..bad.at + bad.width);
            let message = format!("`{}` is not a path template", scalar.text);
            block.faults().push(Diagnostic::new(Code::BadPath, message).at(place).remedy(bad.why));
        })
        .ok()
}

/// A route of which every method is taken by routes above with as wide a path.
fn unreachable(routes: &[Written], faults: &Faults) {
    let known: Vec<(&Written, &Matching)> =
        routes.iter().filter_map(|route| Some((route, route.matching.as_ref()?))).collect();
    for (index, (route, late)) in known.iter().enumerate() {
        let Some(takers) = takers(&known[..index], late) else { continue };
        let called = |route: &Written| format!("`{}`", route.name.as_deref().unwrap_or("?"));
        let takers: Vec<String> = takers.into_iter().map(called).collect();
        let message = format!("no request can reach route {}", called(route));
        let remedy = format!("all are taken by {} above: move this route up", takers.join(" and "));
        faults.push(Diagnostic::new(Code::Unreachable, message).at(late.place).remedy(remedy));
    }
}

/// The earlier routes that leave nothing for `late`; `None` where something is left.
fn takers<'r>(earlier: &[(&'r Written, &Matching)], late: &Matching) -> Option<Vec<&'r Written>> {
    let taker = |method: Option<&String>| {
        let takes = |matching: &Matching| {
            matching.methods.is_empty() || method.is_some_and(|method| matching.methods.contains(method))
        };
        let found = earlier.iter().find(|(_, matching)| takes(matching) && matching.path.covers(&late.path));
        found.map(|(route, _)| *route)
    };
    if late.methods.is_empty() {
        return Some(vec![taker(None)?]);
    }
    let mut takers: Vec<&Written> = Vec::new();
    for method in &late.methods {
        let route = taker(Some(method))?;
        if !takers.iter().any(|known| std::ptr::eq(*known, route)) {
            takers.push(route);
        }
    }
    Some(takers)
}
