//! Reads the most keys of one request, and what happens to a request with an empty list.

use super::{mapping::MappingReader, scalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    key::{KeyTemplate, ResourceKey},
    plan::{EmptyListPolicy, FenceRule, FencingLevel, FormerLock, RequestLeasePolicy},
};

const MAX_KEYS: &str = "max_keys";
const EMPTY: &str = "empty";

pub(super) fn parse_max_keys(fence: &mut MappingReader) -> usize {
    fence.value(MAX_KEYS, parse_keys_per_request).unwrap_or(FenceRule::MAX_KEYS)
}

fn parse_keys_per_request(text: &str) -> Result<usize, Diagnostic> {
    match scalar::limit(text)? {
        most if most > ResourceKey::MOST_IN_SET => {
            let remedy = format!("there may be up to {}", ResourceKey::MOST_IN_SET);
            Err(scalar::out_of_range(text, &remedy))
        }
        most => Ok(most),
    }
}

pub(super) fn parse_empty(fence: &mut MappingReader) -> EmptyListPolicy {
    fence.keyword(EMPTY, EmptyListPolicy::WORDS).unwrap_or_default()
}

/// The fields of a fence that can contradict a list.
pub(super) struct KeyListCheckContext<'f> {
    pub(super) keys: Option<&'f [KeyTemplate]>,
    pub(super) former: Option<&'f FormerLock>,
    pub(super) max_keys: usize,
    pub(super) empty: EmptyListPolicy,
    pub(super) level: Option<FencingLevel>,
    pub(super) lease: RequestLeasePolicy,
}

/// Reports `max_keys` and `empty` without effect, and sets that could have more keys than any request may
/// have.
pub(super) fn check_lists(fence: &mut MappingReader, beside: &KeyListCheckContext) {
    let Some(keys) = beside.keys else { return };
    let former = beside.former.map(|former| &former.key);
    let has_list = keys.iter().chain(former).any(|key| key.has_list());
    for field in [MAX_KEYS, EMPTY] {
        let has_effect = has_list || field == MAX_KEYS && keys.len() > 1;
        if fence.is_present(field) && !has_effect {
            let message = format!("`{field}` has no effect where no key is made of each item of a list");
            let remedy = "leave it out, or name the list: `{body:/items/*/sku}`";
            fence.report(field, Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy));
        }
    }
    if let Some(former) = former {
        let own_list = keys.iter().any(|key| key.has_list());
        let most = if own_list { beside.max_keys } else { keys.len() }
            + if former.has_list() { beside.max_keys } else { 1 };
        if most > ResourceKey::MOST_IN_SET {
            let message = format!("with `migrate_from` it is a set of up to {most} keys, which is too large");
            let field = if own_list && fence.is_present(MAX_KEYS) { MAX_KEYS } else { "migrate_from" };
            let remedy = format!("both together may have up to {}", ResourceKey::MOST_IN_SET);
            fence.report(field, Diagnostic::new(DiagnosticCode::TooManyKeys, message).with_remedy(remedy));
        }
    }
    if beside.empty == EmptyListPolicy::Pass && keys.iter().all(|key| key.has_list()) {
        check_empty_pass(fence, beside);
    }
}

/// Reports `empty: pass` on a fence that needs a key for each request. A request with only empty lists takes
/// no lock, so it has no token, is no operation and runs under no lease.
fn check_empty_pass(fence: &mut MappingReader, beside: &KeyListCheckContext) {
    let (reason, remedy) = if beside.level == Some(FencingLevel::Guard) {
        (
            "the guard refuses what has no token",
            "leave it out, or write a further key that each request has: `keys: [\"order/{path.id}\", ...]`",
        )
    } else if fence.is_present("once") {
        (
            "an operation of `once` belongs to its keys",
            "leave it out, or write a further key that each request has: `keys: [\"order/{path.id}\", ...]`",
        )
    } else if beside.lease == RequestLeasePolicy::Required {
        ("`lease: required` wants a lease, and a lease has a key", "leave one of the two out")
    } else {
        return;
    };
    let message = format!("a request with an empty list cannot pass: {reason}");
    fence.report(EMPTY, Diagnostic::new(DiagnosticCode::ListUnfit, message).with_remedy(remedy));
}
