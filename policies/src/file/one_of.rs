//! Reads fields of which exactly one has to be present.

use super::{field_recorder, mapping::MappingReader};
use crate::diagnostics::{Diagnostic, DiagnosticCode};

/// The first of `names` that is present. Reports a mistake unless exactly one is present. `example`: a line that
/// the user could write.
pub(super) fn exactly_one(
    block: &mut MappingReader,
    names: &[&'static str],
    example: &str,
) -> Option<&'static str> {
    field_recorder::one_of(names);
    // Read every name, so that none of them is reported as unknown.
    let present: Vec<&'static str> = names.iter().copied().filter(|name| block.is_present(name)).collect();
    let listed = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    match *present {
        [] => {
            let message = format!("{} has none of {}", block.mapping_name(), listed(names).join(", "));
            // The mistake is shown at the mapping, which is the place of an absent field.
            block.report(
                names[0],
                Diagnostic::new(DiagnosticCode::MissingField, message).with_remedy(example),
            );
            None
        }
        [one] => Some(one),
        [first, second, ..] => {
            let message = format!(
                "{} has {}: only one can be meant",
                block.mapping_name(),
                listed(&present).join(" and ")
            );
            block.report(
                second,
                Diagnostic::new(DiagnosticCode::OnlyOne, message).with_remedy("leave all but one out"),
            );
            Some(first)
        }
    }
}
