//! Asks for fields of which exactly one has to be there.

use super::{asked, block::Block};
use crate::diagnose::{Code, Diagnostic};

/// The first of `names` that is there; a fault says so where none is, or more than one. `example` is what one could
/// write.
pub(super) fn exactly_one(block: &mut Block, names: &[&'static str], example: &str) -> Option<&'static str> {
    asked::one_of(names);
    // Every name is asked for, so that each of them is known.
    let present: Vec<&'static str> = names.iter().copied().filter(|name| block.is_present(name)).collect();
    let listed = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    match *present {
        [] => {
            let message = format!("{} has none of {}", block.what(), listed(names).join(", "));
            // Where it is absent, a fault stands at the mapping.
            block.fault(names[0], Diagnostic::new(Code::MissingField, message).remedy(example));
            None
        }
        [one] => Some(one),
        [first, second, ..] => {
            let message =
                format!("{} has {}: only one can be meant", block.what(), listed(&present).join(" and "));
            block.fault(second, Diagnostic::new(Code::OnlyOne, message).remedy("leave all but one out"));
            Some(first)
        }
    }
}
