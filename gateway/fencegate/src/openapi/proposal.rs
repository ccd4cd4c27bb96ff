//! The proposed route of each operation of a document.

use super::{path::specificity, policy_parts::ProposedKey};

/// The proposals for all operations of a document, in the order of their routes.
#[derive(Debug)]
pub(super) struct Proposals {
    pub(super) proposals: Vec<Proposal>,
    /// The paths whose operations could not be read, with the path of the server before each.
    pub(super) unread_paths: Vec<String>,
}

/// The proposed route of one operation, or the reason for which it has none.
#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) method: String,
    /// The path with its parameters, with the path of the server before it.
    pub(super) path: String,
    /// The path template; `None` if a policy cannot express the path.
    pub(super) template: Option<String>,
    pub(super) decision: Decision,
    /// The source of the idempotency key, as the key of `once` writes it.
    pub(super) idempotency: Option<String>,
}

#[derive(Debug)]
pub(super) enum Decision {
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
pub struct ImportCounts {
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

impl Proposals {
    pub(super) fn counts(&self) -> ImportCounts {
        let mut counts = ImportCounts { operations: self.proposals.len(), ..ImportCounts::default() };
        for proposal in &self.proposals {
            match &proposal.decision {
                Decision::Read => counts.reads += 1,
                Decision::Undecided { .. } => counts.undecided += 1,
                Decision::Fence { doubts, has_filter, .. } => {
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

impl Proposal {
    /// The sort key of the routes: the first route that matches takes a request, so more exact ones come
    /// first.
    pub(super) fn order(&self) -> (Vec<(u8, &str)>, &str) {
        (specificity(self.template.as_ref().unwrap_or(&self.path)), &self.method)
    }
}
