//! A word in the place of a mapping is reported with the fields that would be there.

use fencegate_policies::{diagnostics::DiagnosticCode, file::load};

/// Not among the cases of `bad/`: those hold whole texts, and this one names all fields of a route, so every new field
/// would change it.
#[test]
fn word_as_route_lists_fields() {
    let loaded = load("version: 1\nroutes:\n  - capture\n");
    let wrong: Vec<_> =
        loaded.diagnostics.iter().filter(|one| one.code == DiagnosticCode::WrongShape).collect();
    let [wrong] = wrong[..] else { panic!("one of them: {:#?}", loaded.diagnostics) };
    assert_eq!(wrong.message, "a route is a mapping of fields");
    assert_eq!(wrong.place.map(|place| (place.line, place.column)), Some((3, 5)));
    let remedy = wrong.remedy.as_deref().expect("what to write");
    for field in ["`name: ...`", "`upstream: ...`", "`match: ...`", "`fence: ...`"] {
        assert!(remedy.contains(field), "{field} in {remedy}");
    }
}
