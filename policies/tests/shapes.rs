//! A single value in the place of a mapping is reported with the fields that the mapping can have.

use fencegate_policies::{diagnostics::DiagnosticCode, file::load};

/// A word in the place of a route is reported with a list of all fields of a route. This is not a case of `bad/`,
/// because every new field would change its recorded text.
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
