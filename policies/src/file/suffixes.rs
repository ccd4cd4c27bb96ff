//! Finds variables that take a suffix which other routes write out: `/orders/{id}` takes `42:refund` as well, where there is
//! `/orders/{id}:cancel`.

use super::diagnostics::Diagnostics;
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    key::{KeyTemplate, TemplateValueFilter, TemplateValueSource, TemplateVariable},
    path::{AffixedVariable, PathTemplate, PathTemplateSegment},
    plan::ServiceId,
};

/// A route, with the keys of its fence.
pub(super) struct SuffixedRoute<'r> {
    pub(super) name: &'r str,
    pub(super) path: &'r PathTemplate,
    pub(super) place: SourceSpan,
    pub(super) service: ServiceId,
    /// None for an unfenced route.
    pub(super) keys: &'r [KeyTemplate],
}

/// Files with more routes are read without these warnings, because each route is compared with all others.
const MOST_ROUTES: usize = 1000;

pub(super) fn check_suffixes(routes: &[SuffixedRoute], faults: &Diagnostics) {
    if routes.len() > MOST_ROUTES {
        return;
    }
    for route in routes {
        let suffixed = route.path.pieces().iter().enumerate().find_map(|(at, piece)| {
            let PathTemplateSegment::Variable(name) = piece else { return None };
            let takes_suffix = route
                .keys
                .iter()
                .flat_map(KeyTemplate::variables)
                .any(|variable| is_path_variable(variable, name) && !bounds_suffix(variable));
            let sibling = routes.iter().filter(|other| takes_suffix && other.service == route.service);
            sibling
                .filter_map(|other| affixed_at(route.path, other.path, at).map(|affixed| (other, affixed)))
                .next()
                .map(|(other, affixed)| (name, other, affixed))
        });
        if let Some((name, other, affixed)) = suffixed {
            faults.push(suffix_warning(route, name, other, affixed));
        }
    }
}

fn is_path_variable(variable: &TemplateVariable, name: &str) -> bool {
    matches!(&variable.source, TemplateValueSource::Path(known) if **known == *name)
}

/// A value with a suffix is refused, or loses it.
fn bounds_suffix(variable: &TemplateVariable) -> bool {
    let bounds = |filter: &TemplateValueFilter| {
        filter.is_canonical() || matches!(filter, TemplateValueFilter::Without(_))
    };
    variable.filters.iter().any(bounds)
}

/// The variable with text around it that `other` has in the place of segment `at` of `path`, behind the same segments.
fn affixed_at<'o>(path: &PathTemplate, other: &'o PathTemplate, at: usize) -> Option<&'o AffixedVariable> {
    let same = |(one, two): (&PathTemplateSegment, &PathTemplateSegment)| match (one, two) {
        (PathTemplateSegment::Literal(one), PathTemplateSegment::Literal(two)) => one == two,
        (PathTemplateSegment::Variable(_), PathTemplateSegment::Variable(_)) => true,
        _ => false,
    };
    let before = other.pieces().get(..at)?;
    match other.pieces().get(at)? {
        PathTemplateSegment::Affixed(affixed) if path.pieces().iter().zip(before).all(same) => Some(affixed),
        _ => None,
    }
}

fn suffix_warning(
    route: &SuffixedRoute,
    variable: &str,
    other: &SuffixedRoute,
    affixed: &AffixedVariable,
) -> Diagnostic {
    let message = format!(
        "`{{{variable}}}` of route `{}` takes a text like that of route `{}` (`{affixed}`) as a whole: one resource can get two keys",
        route.name, other.name
    );
    let remedy = format!(
        "bound it in the key: `{{path.{variable} | int}}`, `uuid`, `match('[a-z0-9-]{{1,40}}')`, or `without('{}')`",
        affixed.suffix()
    );
    Diagnostic::new(DiagnosticCode::SuffixTaken, message).at(route.place).with_remedy(remedy)
}
