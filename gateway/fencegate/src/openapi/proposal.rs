//! What becomes of the operations of a document.

use super::{path::specificity, policy_parts::ProposedKey};

/// The operations of a document, in the order of their routes.
#[derive(Debug)]
pub(super) struct Proposals {
    pub(super) proposals: Vec<Proposal>,
    /// Paths of which no operation could be read, as clients write them.
    pub(super) unread_paths: Vec<String>,
}

/// What becomes of one operation.
#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) method: String,
    /// As clients write it, with its parameters.
    pub(super) path: String,
    /// As a policy has it; `None` if no policy can have it.
    pub(super) template: Option<String>,
    pub(super) decision: Decision,
    /// A value by which clients say that a request is a repeat, as a key of `once` has it.
    pub(super) idempotency: Option<String>,
}

#[derive(Debug)]
pub(super) enum Decision {
    /// The method changes nothing.
    Read,
    Fence {
        key: ProposedKey,
        /// What the document leaves open.
        doubts: Vec<String>,
        /// The filters leave one spelling for each value.
        has_filter: bool,
    },
    /// No route.
    Undecided {
        reason: String,
        /// Keys that may be meant.
        candidates: Vec<ProposedKey>,
    },
}

/// What became of the operations of a document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportCounts {
    pub operations: usize,
    /// With a route and without a lock.
    pub reads: usize,
    /// With a key, about which the document leaves nothing open.
    pub fenced: usize,
    /// With a key, and a doubt beside it.
    pub doubtful: usize,
    /// Without a route.
    pub undecided: usize,
    /// Of those with a key: without a filter that gives each value one spelling.
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
    /// The order of routes, of which the first that matches counts.
    pub(super) fn order(&self) -> (Vec<(u8, &str)>, &str) {
        (specificity(self.template.as_ref().unwrap_or(&self.path)), &self.method)
    }
}
