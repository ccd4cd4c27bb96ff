//! Finds variables that take a suffix which another route writes out: `/orders/{id}` also takes `42:refund`, beside a
//! route `/orders/{id}:cancel`.

use super::diagnostics::Diagnostics;
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    key::{
        KeyTemplate, PatternProbePart, TemplateValueFilter, TemplateValueSource, TemplateVariable,
        ValuePattern,
    },
    path::{AffixedVariable, PathTemplate, PathTemplateSegment, TextAroundVariable, VariableSuffix},
    plan::ServiceId,
};

/// A route with the keys of its fence.
pub(super) struct KeyedRoute<'r> {
    pub(super) name: &'r str,
    pub(super) path: &'r PathTemplate,
    pub(super) place: SourceSpan,
    pub(super) service: ServiceId,
    /// The keys; empty for an unfenced route.
    pub(super) keys: &'r [KeyTemplate],
}

/// The most routes for which these warnings are given, because each route is compared with all others.
const MOST_ROUTES: usize = 1000;

pub(super) fn check_suffixes(routes: &[KeyedRoute], faults: &Diagnostics) {
    if routes.len() > MOST_ROUTES {
        return;
    }
    for route in routes {
        let siblings = || routes.iter().filter(|other| other.service == route.service);
        let suffixed = route.path.pieces().iter().enumerate().find_map(|(at, piece)| {
            siblings().find_map(|other| GreedyKeyVariable::find(route, at, piece, other))
        });
        if let Some(suffixed) = suffixed {
            faults.push(suffixed.suffix_taken_warning(route));
        }
    }
}

/// A variable of a key that may take the text which another route writes around its own variable.
struct GreedyKeyVariable<'r> {
    name: &'r str,
    other: &'r KeyedRoute<'r>,
    affixed: &'r AffixedVariable,
    taken: TextAroundVariable,
}

impl<'r> GreedyKeyVariable<'r> {
    /// Compares the segment `piece` of `route`, at index `at`, with the segment of `other` at the same index.
    fn find(
        route: &'r KeyedRoute<'r>,
        at: usize,
        piece: &'r PathTemplateSegment,
        other: &'r KeyedRoute<'r>,
    ) -> Option<Self> {
        let affixed = affixed_at(route.path, other.path, at)?;
        let (name, taken) = match piece {
            PathTemplateSegment::Variable(name) => (&**name, affixed.text()),
            PathTemplateSegment::Affixed(own) => (own.name(), own.text_taken_of(affixed)?),
            PathTemplateSegment::Literal(_) | PathTemplateSegment::Rest(_) => return None,
        };
        let mut variables = route.keys.iter().flat_map(KeyTemplate::variables);
        let is_taken = variables.any(|variable| {
            is_path_variable(variable, name) && !filters_reject_affix(&variable.filters, &taken)
        });
        is_taken.then_some(Self { name, other, affixed, taken })
    }

    fn suffix_taken_warning(&self, route: &KeyedRoute) -> Diagnostic {
        let Self { name, other, affixed, taken } = self;
        let message = format!(
            "`{{{name}}}` of route `{}` takes a text like that of route `{}` (`{affixed}`) as a whole: one resource can get two keys",
            route.name, other.name
        );
        let mut ways = vec![format!("`{{path.{name} | int}}`"), "`uuid`".into()];
        let bounding = PATTERNS.into_iter().find(|pattern| {
            let filter = ValuePattern::parse(pattern).map(TemplateValueFilter::Match);
            filter.is_ok_and(|filter| filters_reject_affix(&[filter], taken))
        });
        ways.extend(bounding.map(|pattern| format!("`match('{pattern}')`")));
        if let TextAroundVariable { before, after: VariableSuffix::Literal(after) } = taken
            && before.is_empty()
            && !after.contains('\'')
        {
            ways.push(format!("`without('{after}')`"));
        }
        let last = ways.pop().unwrap_or_default();
        let remedy = format!("bound it in the key: {}, or {last}", ways.join(", "));
        Diagnostic::new(DiagnosticCode::SuffixTaken, message).at(route.place).with_remedy(remedy)
    }
}

/// Patterns that a remedy can suggest, the widest first.
const PATTERNS: [&str; 3] = ["[a-z0-9-]{1,40}", "[a-z0-9]{1,40}", "[0-9]{1,40}"];

fn is_path_variable(variable: &TemplateVariable, name: &str) -> bool {
    matches!(&variable.source, TemplateValueSource::Path(known) if **known == *name)
}

/// Whether the filters leave no value with `text` around it as it is: each such value is refused, or loses the text.
fn filters_reject_affix(filters: &[TemplateValueFilter], text: &TextAroundVariable) -> bool {
    let mut before = text.before.to_string();
    let mut after = match &text.after {
        VariableSuffix::Literal(after) => Some(after.to_string()),
        VariableSuffix::Format(_) => None,
    };
    for filter in filters {
        let consists_of = |is_part: fn(char) -> bool| {
            after.as_ref().is_some_and(|after| before.chars().chain(after.chars()).all(is_part))
        };
        match filter {
            TemplateValueFilter::Int if !consists_of(|char| char.is_ascii_digit()) => return true,
            TemplateValueFilter::Uuid if !consists_of(|char| char.is_ascii_hexdigit() || char == '-') => {
                return true;
            }
            TemplateValueFilter::Int | TemplateValueFilter::Uuid => {}
            TemplateValueFilter::Match(pattern) => {
                let literal = |text: &str| PatternProbePart::Literal(text.to_owned());
                let parts = match &after {
                    Some(after) => vec![literal(&before), PatternProbePart::Any, literal(after)],
                    None => vec![
                        literal(&before),
                        PatternProbePart::AnyWithoutDot,
                        literal("."),
                        PatternProbePart::AnyWithoutDot,
                    ],
                };
                if !pattern.can_match(&parts) {
                    return true;
                }
            }
            TemplateValueFilter::Split | TemplateValueFilter::Whole => {}
            // The filter removes the formats that it names, but the service may have others.
            TemplateValueFilter::Without(_) => {
                after = after.map(|after| filter.apply_to_text(&after));
            }
            TemplateValueFilter::Lower
            | TemplateValueFilter::Casefold
            | TemplateValueFilter::Nfc
            | TemplateValueFilter::Trim => {
                before = filter.apply_to_text(&before);
                after = after.map(|after| filter.apply_to_text(&after));
            }
        }
    }
    before.is_empty() && after.is_some_and(|after| after.is_empty())
}

/// The variable with text around it that `other` has at segment `at`, if both paths are equal before that segment.
fn affixed_at<'o>(path: &PathTemplate, other: &'o PathTemplate, at: usize) -> Option<&'o AffixedVariable> {
    let same = |(one, two): (&PathTemplateSegment, &PathTemplateSegment)| match (one, two) {
        (PathTemplateSegment::Literal(one), PathTemplateSegment::Literal(two)) => one == two,
        (PathTemplateSegment::Variable(_), PathTemplateSegment::Variable(_)) => true,
        (PathTemplateSegment::Affixed(one), PathTemplateSegment::Affixed(two)) => one.has_same_segments(two),
        _ => false,
    };
    let before = other.pieces().get(..at)?;
    match other.pieces().get(at)? {
        PathTemplateSegment::Affixed(affixed) if path.pieces().iter().zip(before).all(same) => Some(affixed),
        _ => None,
    }
}
