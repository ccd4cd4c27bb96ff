//! Writes the policy, with a comment for each decision that the document leaves open.

use std::collections::HashSet;

use fencegate_policies::{
    diagnostics::{Diagnostic, Severity},
    file,
};
use fencegate_process::display::sanitize;

use super::{
    document::OpenApiDocument,
    overlap,
    policy_parts::{
        ENDPOINTS, FENCING, LISTENER_AND_ZOOKEEPER, ProposedKey, RESPONSE_TIMEOUT, UPSTREAM, quote,
        route_lines,
    },
    proposal::{OpenApiImportCounts, RouteFenceDecision, RouteProposal, RouteProposals},
    server::BasePath,
};

/// The word in each comment about something that a person has to decide.
pub const MARK: &str = "DECIDE";

/// A policy that was made from an OpenAPI document.
#[derive(Debug)]
pub struct OpenApiPolicyDraft {
    /// The policy. `fencegate check` finds no error in it.
    pub text: String,
    pub counts: OpenApiImportCounts,
}

impl OpenApiPolicyDraft {
    pub(super) fn new(document: &OpenApiDocument, base: &BasePath, proposals: RouteProposals) -> Self {
        let mut proposals = proposals;
        loop {
            let written = RenderedPolicy::write(document, base, &proposals);
            let refused = written.refused_routes();
            if refused.is_empty() {
                return Self { text: written.text, counts: proposals.counts() };
            }
            for (proposal, reason) in refused {
                // An undecided proposal has no route and is not refused again, so the loop ends.
                proposals.proposals[proposal].decision =
                    RouteFenceDecision::Undecided { reason, candidates: Vec::new() };
            }
            overlap::withdraw_overlapping_routes(&mut proposals);
        }
    }
}

/// The text of the policy, with the lines of each route and the proposals that it covers.
struct RenderedPolicy {
    text: String,
    routes: Vec<RenderedRoute>,
}

struct RenderedRoute {
    /// The number of the first line, counted from 1.
    first_line: usize,
    proposals: Vec<usize>,
}

impl RenderedPolicy {
    fn write(document: &OpenApiDocument, base: &BasePath, proposals: &RouteProposals) -> Self {
        let mut text = head(document, base, proposals);
        let mut routes = Vec::new();
        let mut names = HashSet::new();
        let mut line = text.lines().count();
        for group in group_by_route(&proposals.proposals) {
            let block = group.render_route_lines(&proposals.proposals, &mut names);
            text.push('\n');
            block.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
            if group.has_route(&proposals.proposals) {
                routes.push(RenderedRoute { first_line: line + 2, proposals: group.0 });
            }
            line += 1 + block.len();
        }
        text.push_str(
            "\nunmatched: reject                  # 404: nothing reaches the service by accident\n",
        );
        Self { text, routes }
    }

    /// The proposals whose routes are errors beside the other routes, each with the reason.
    fn refused_routes(&self) -> Vec<(usize, String)> {
        let loaded = file::load(&self.text);
        let errors = loaded.diagnostics.iter().filter(|one| one.severity == Severity::Error);
        let refused = errors.filter_map(|error| Some((self.route_at(error)?, error)));
        let refused = refused.flat_map(|(route, Diagnostic { code, message, .. })| {
            let reason = format!("its route would be refused beside the others ({code}: {message})");
            route.proposals.iter().map(move |proposal| (*proposal, reason.clone()))
        });
        refused.collect()
    }

    fn route_at(&self, error: &Diagnostic) -> Option<&RenderedRoute> {
        let line = error.place?.line;
        self.routes.iter().rev().find(|route| route.first_line <= line)
    }
}

/// The part of the file above its routes.
fn head(document: &OpenApiDocument, base: &BasePath, proposals: &RouteProposals) -> String {
    let info = |name: &str| document.field("info").and_then(|info| info.get(name)?.as_str());
    let title =
        info("title").map_or_else(|| "an OpenAPI document".to_owned(), |title| format!("\"{title}\""));
    let version = info("version").map(|version| format!(" {version}")).unwrap_or_default();
    let OpenApiImportCounts { operations, reads, fenced, doubtful, undecided, unfiltered } =
        proposals.counts();
    let mut lines = vec![
        comment(&format!("Made out of {title}{version} by `init --openapi`. Operations: {operations}.")),
        comment(&format!(
            "Reads without a lock: {reads}. With a key: {fenced}, and {doubtful} with a doubt. Without a route: {undecided}."
        )),
        comment(&format!(
            "Each {MARK} below is about something that the document does not say. {unfiltered} of the keys take any text."
        )),
    ];
    lines.extend(proposals.unread_paths.iter().map(|path| {
        comment(&format!("{MARK}: the path `{path}` could not be read, and its requests are refused"))
    }));
    let mut text = lines.join("\n");
    text.push_str(&format!("\n{LISTENER_AND_ZOOKEEPER}\nupstreams:\n  {UPSTREAM}:\n"));
    let urls = base.urls().join(", ");
    let clients = if urls.is_empty() { String::new() } else { format!("; clients write {urls}") };
    text.push_str(&format!("    {}\n", comment(&format!("{MARK}: where the service listens{clients}"))));
    text.push_str(&format!("{ENDPOINTS}\n"));
    let level = format!("{MARK}: who compares tokens. `none`: nobody does, and the lock is all there is");
    text.push_str(&format!("    {}\n{FENCING}\n{RESPONSE_TIMEOUT}\n\nroutes:\n", comment(&level)));
    for doubt in base.doubts() {
        text.push_str(&format!("  {}\n", comment(&format!("{MARK}: {doubt}"))));
    }
    text
}

/// The indices of the proposals that share a route.
struct RouteProposalGroup(Vec<usize>);

/// Groups the proposals that have the same path and the same fence. The groups keep the order of their first
/// proposals.
fn group_by_route(proposals: &[RouteProposal]) -> Vec<RouteProposalGroup> {
    let mut groups: Vec<RouteProposalGroup> = Vec::new();
    for (at, proposal) in proposals.iter().enumerate() {
        // Proposals are sorted by path, so the groups of one path are adjacent.
        let mut same_path =
            groups.iter_mut().rev().take_while(|group| proposals[group.0[0]].path == proposal.path);
        match same_path.find(|group| proposals[group.0[0]].shares_route(proposal)) {
            Some(group) => group.0.push(at),
            None => groups.push(RouteProposalGroup(vec![at])),
        }
    }
    groups
}

impl RouteProposal {
    fn shares_route(&self, other: &Self) -> bool {
        match (&self.decision, &other.decision) {
            (RouteFenceDecision::Read, RouteFenceDecision::Read) => true,
            (RouteFenceDecision::Fence { key, .. }, RouteFenceDecision::Fence { key: theirs, .. }) => {
                key == theirs
            }
            _ => false,
        }
    }
}

impl RouteProposalGroup {
    fn members<'p>(&self, proposals: &'p [RouteProposal]) -> impl Iterator<Item = &'p RouteProposal> {
        self.0.iter().map(|at| &proposals[*at])
    }

    fn has_route(&self, proposals: &[RouteProposal]) -> bool {
        self.members(proposals)
            .all(|proposal| !matches!(proposal.decision, RouteFenceDecision::Undecided { .. }))
    }

    /// The lines of the route, or of the comment that stands in its place, without indentation.
    fn render_route_lines(&self, proposals: &[RouteProposal], names: &mut HashSet<String>) -> Vec<String> {
        let Some(first) = self.members(proposals).next() else { return Vec::new() };
        let mut methods: Vec<_> = self.members(proposals).map(|proposal| &*proposal.method).collect();
        let written = first.template.as_ref().unwrap_or(&first.path);
        match &first.decision {
            RouteFenceDecision::Read => {
                if methods.contains(&"GET") && !methods.contains(&"HEAD") {
                    methods.push("HEAD");
                }
                let name = route_name("read-", &first.path, names);
                route_lines(&name, &methods, written, "none").into()
            }
            RouteFenceDecision::Fence { key, .. } => {
                let name = route_name("", &first.path, names);
                let [begin, rest @ ..] = route_lines(&name, &methods, written, &key.fence_yaml());
                let mut lines = vec![begin];
                lines.extend(self.route_comments(proposals).into_iter().map(|line| format!("  {line}")));
                lines.extend(rest);
                lines
            }
            RouteFenceDecision::Undecided { reason, candidates } => {
                let shown = format!(
                    "{MARK}: `{} {}` has no route, and its requests are refused: {reason}",
                    methods.join("`, `"),
                    first.path
                );
                let mut lines = vec![comment(&shown)];
                if first.template.is_some() {
                    let name = route_name("", &first.path, names);
                    let fence = undecided_fence(candidates);
                    lines.extend(
                        route_lines(&name, &methods, written, &fence).iter().map(|line| comment(line)),
                    );
                }
                lines
            }
        }
    }

    /// The comments in a route with a lock: the open questions, and the idempotency key.
    fn route_comments(&self, proposals: &[RouteProposal]) -> Vec<String> {
        let mut comments: Vec<String> = Vec::new();
        let mut add = |line: String| {
            if !comments.contains(&line) {
                comments.push(line);
            }
        };
        for proposal in self.members(proposals) {
            if let RouteFenceDecision::Fence { doubts, has_filter, .. } = &proposal.decision {
                doubts.iter().for_each(|doubt| add(comment(&format!("{MARK}: {doubt}"))));
                if !has_filter {
                    add(comment(&format!("{MARK}: {NO_FILTER}")));
                }
            }
            if let Some(source) = &proposal.idempotency {
                add(comment(&format!(
                    "clients name an operation by `{{{source}}}`, which `once` can take as its key"
                )));
            }
        }
        comments
    }
}

const NO_FILTER: &str = "the document does not say what the value is made of; a filter, as `int`, `uuid` or `match('[a-z0-9-]{1,40}')`, gives it one spelling";

/// The `fence` of a commented-out route. It has no value, so that `check` reports an error if the route is
/// used without a decision.
fn undecided_fence(candidates: &[ProposedKey]) -> String {
    let all: Vec<_> = candidates.iter().map(|key| quote(&key.template)).collect();
    let question = match &*all {
        [] => "a key, or `none` if it changes nothing that has a lock".to_owned(),
        [one] => format!("is the key {one}?"),
        several => format!("is the key one of {}, or are several of them `keys`?", several.join(", ")),
    };
    format!("   # {MARK}: {question}")
}

/// A name for the route that no other route has.
fn route_name(prefix: &str, path: &str, names: &mut HashSet<String>) -> String {
    const LONGEST: usize = 48;
    let mut name = String::new();
    for char in path.chars() {
        if char.is_ascii_alphanumeric() {
            name.push(char.to_ascii_lowercase());
        } else if !name.ends_with('-') && !name.is_empty() {
            name.push('-');
        }
    }
    name.truncate(LONGEST);
    let name = name.trim_end_matches('-');
    let begins = match (prefix.is_empty(), name.starts_with(|first: char| first.is_ascii_alphabetic())) {
        (true, false) => "route-",
        _ => prefix,
    };
    let name = format!("{begins}{name}");
    let name = name.trim_end_matches('-').to_owned();
    let mut free = name.clone();
    let mut number = 2;
    while !names.insert(free.clone()) {
        free = format!("{name}-{number}");
        number += 1;
    }
    free
}

/// A comment of one line, with control characters and line breaks of the text replaced.
fn comment(text: &str) -> String {
    const LONGEST: usize = 400;
    let text: String = sanitize(text).chars().take(LONGEST).collect();
    format!("# {}", text.trim_end())
}
