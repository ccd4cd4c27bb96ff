//! The proposed route of each operation of a document.

use super::{path::specificity, policy_parts::ProposedKey};

/// The proposals for all operations of a document, in the order of their routes.
#[derive(Debug)]
pub(super) struct RouteProposals {
    pub(super) proposals: Vec<RouteProposal>,
    /// The paths whose operations could not be read, with the path of the server before each.
    pub(super) unread_paths: Vec<String>,
}

/// The proposed route of one operation, or the reason for which it has none.
#[derive(Debug)]
pub(super) struct RouteProposal {
    pub(super) method: String,
    /// The path with its parameters, with the path of the server before it.
    pub(super) path: String,
    /// The path template; `None` if a policy cannot express the path.
    pub(super) template: Option<String>,
    pub(super) decision: RouteFenceDecision,
    /// The source of the idempotency key, as the key of `once` writes it.
    pub(super) idempotency: Option<String>,
}

#[derive(Debug)]
pub(super) enum RouteFenceDecision {
    /// A route without a lock, because the method changes nothing.
    Read,
    Fence {
        key: ProposedKey,
        /// The questions that the document leaves open.
        doubts: Vec<String>,
        /// True if the filters of the key leave one spelling for each value.
        has_filter: bool,
    },
    /// No route: a person has to decide about the operation.
    Undecided {
        reason: String,
        /// The keys that may be meant.
        candidates: Vec<ProposedKey>,
    },
}

/// The number of operations by decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenApiImportCounts {
    pub operations: usize,
    /// Operations with a route and without a lock.
    pub reads: usize,
    /// Operations with a key about which the document leaves nothing open.
    pub fenced: usize,
    /// Operations with a key and at least one open question.
    pub doubtful: usize,
    /// Operations without a route.
    pub undecided: usize,
    /// Operations with a key whose filters do not leave one spelling for each value.
    pub unfiltered: usize,
}

impl RouteProposals {
    pub(super) fn counts(&self) -> OpenApiImportCounts {
        let mut counts =
            OpenApiImportCounts { operations: self.proposals.len(), ..OpenApiImportCounts::default() };
        for proposal in &self.proposals {
            match &proposal.decision {
                RouteFenceDecision::Read => counts.reads += 1,
                RouteFenceDecision::Undecided { .. } => counts.undecided += 1,
                RouteFenceDecision::Fence { doubts, has_filter, .. } => {
                    match doubts.is_empty() {
                        true => counts.fenced += 1,
                        false => counts.doubtful += 1,
                    }
                    counts.unfiltered += usize::from(!has_filter);
                }
            }
        }
        counts
    }
}

impl RouteProposal {
    /// The sort key of the routes: the first route that matches takes a request, so more exact ones come
    /// first.
    pub(super) fn route_sort_key(&self) -> (Vec<(u8, &str)>, &str) {
        (specificity(self.template.as_ref().unwrap_or(&self.path)), &self.method)
    }
}
