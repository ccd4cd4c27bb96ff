//! Reads whether a service may call back under the lock that it holds, and reports fences for which the call could
//! not be verified.

use super::mapping::MappingReader;
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::NestedRequestPolicy,
};

/// Reads `nested`. `signs`: the file has a key that signs tickets.
pub(super) fn parse_nested_policy(block: &mut MappingReader, signs: bool) -> Option<NestedRequestPolicy> {
    let written = block.keyword("nested", NestedRequestPolicy::WORDS);
    if written == Some(NestedRequestPolicy::Allow) && !signs {
        let message = "a service cannot prove what it calls back for: the policy has no `tickets`, \
                       so nothing is signed that it could show";
        let remedy = "make a key with `fencegate keys new KEYFILE`, and add `tickets: {signing_key_file: /run/secrets/fencegate-ed25519}` \
                      to the policy, or write `ignore`";
        block.report("nested", Diagnostic::new(DiagnosticCode::NestedUnsigned, message).with_remedy(remedy));
    }
    written
}
