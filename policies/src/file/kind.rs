//! Distinguishes the policy of a gateway from the file of a guard, so that the wrong file is reported in one
//! sentence.

use super::{
    diagnostics::Diagnostics,
    yaml::{YamlNode, YamlNodeValue},
};
use crate::diagnostics::{Diagnostic, DiagnosticCode, SourceSpan};

/// The kind of process that a file configures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyProcessKind {
    Gateway,
    Guard,
}

/// Fields that only the policy of a gateway has.
const GATEWAY: [&str; 4] = ["zookeeper", "routes", "upstreams", "listeners"];

/// Fields that only the file of a guard has.
const GUARD: [&str; 4] = ["store", "filter", "upstream", "listener"];

/// The kind of process that a file is for. The file of a guard has a field that only guards have, and no field
/// that only gateways have. Every other file counts as that of a gateway.
pub(super) fn detect(root: &YamlNode) -> PolicyProcessKind {
    match (first_place(root, &GUARD), first_place(root, &GATEWAY)) {
        (Some(_), None) => PolicyProcessKind::Guard,
        _ => PolicyProcessKind::Gateway,
    }
}

/// Reports a file of the other kind, and returns false for it. All its fields would be unknown, so nothing else
/// is reported then.
pub(super) fn reject_other_kind(root: &YamlNode, kind: PolicyProcessKind, faults: &Diagnostics) -> bool {
    let (own, others, message, remedy) = match kind {
        PolicyProcessKind::Gateway => (
            &GATEWAY[..],
            &GUARD[..],
            "this is the file of a guard, not the policy of a gateway",
            "start it with `fencegate guard -c FILE`",
        ),
        PolicyProcessKind::Guard => (
            &GUARD[..],
            &GATEWAY[..],
            "this is the policy of a gateway, not the file of a guard",
            "start it with `fencegate run -c FILE`",
        ),
    };
    // A file with fields of both kinds is read as one with mistakes.
    match (first_place(root, own), first_place(root, others)) {
        (None, Some(place)) => {
            faults.push(Diagnostic::new(DiagnosticCode::OtherFile, message).at(place).with_remedy(remedy));
            false
        }
        _ => true,
    }
}

/// The place of the first field whose name is among `names`.
fn first_place(root: &YamlNode, names: &[&str]) -> Option<SourceSpan> {
    let YamlNodeValue::Mapping(fields) = &root.value else { return None };
    fields.iter().find(|(key, _)| names.contains(&&*key.text)).map(|(key, _)| key.place)
}
