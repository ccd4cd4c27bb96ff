//! Reads how bodies are handled that are too large to be buffered in full, and how a body is parsed from which a key
//! is taken.

use super::{mapping::MappingReader, scalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    key::KeyTemplate,
    plan::{BodyTypeRequirement, IdempotencyRule, LargeBodyPolicy},
};

const BODY_TYPE: &str = "body_type";
const EXACT_NUMBERS: &str = "exact_numbers";

/// Reads `large_bodies`. `keys`: the keys of the fence and the former key. `once`: the operation rule of the fence.
/// Both are `None` if not known.
pub(super) fn large_bodies(
    fence: &mut MappingReader,
    keys: Option<&[KeyTemplate]>,
    once: Option<&IdempotencyRule>,
) -> LargeBodyPolicy {
    let written = fence.keyword("large_bodies", &LargeBodyPolicy::WORDS).unwrap_or_default();
    let upload_timeout = fence.value("upload_timeout", scalar::time_limit);
    let LargeBodyPolicy::Stream { within } = written else {
        report_no_effect(fence);
        return LargeBodyPolicy::Refuse;
    };
    let in_full = match (keys, once) {
        (_, Some(_)) => Some("`once` tells one operation from another by its whole body"),
        (Some(keys), None) if keys.iter().any(KeyTemplate::reads_body) => Some("the key stands in the body"),
        _ => None,
    };
    if let Some(reason) = in_full {
        let fault = Diagnostic::new(
            DiagnosticCode::StreamedBody,
            format!("a body cannot be streamed where {reason}"),
        );
        fence.report("large_bodies", fault.with_remedy("leave it out, and raise `limits.max_body` instead"));
    }
    LargeBodyPolicy::Stream { within: upload_timeout.unwrap_or(within) }
}

fn report_no_effect(fence: &mut MappingReader) {
    if fence.is_present("upload_timeout") {
        let message = "`upload_timeout` has no effect without `large_bodies: stream`";
        let fault = Diagnostic::new(DiagnosticCode::NoEffect, message);
        fence.report("upload_timeout", fault.with_remedy("leave it out, or write `large_bodies: stream`"));
    }
}

/// Reads `body_type`. `keys`: the keys of the fence and the former key. `once`: the operation rule of the fence. Both
/// are `None` if not known.
pub(super) fn body_type(
    fence: &mut MappingReader,
    keys: Option<&[KeyTemplate]>,
    once: Option<&IdempotencyRule>,
) -> BodyTypeRequirement {
    let written = fence.keyword(BODY_TYPE, BodyTypeRequirement::WORDS);
    report_no_effect_without_json(fence, BODY_TYPE, keys, once);
    written.unwrap_or_default()
}

/// Reads `exact_numbers`. `keys`: the keys of the fence and the former key. `once`: the operation rule of the fence.
/// Both are `None` if not known.
pub(super) fn exact_numbers(
    fence: &mut MappingReader,
    keys: Option<&[KeyTemplate]>,
    once: Option<&IdempotencyRule>,
) -> bool {
    let written = fence.keyword(EXACT_NUMBERS, &[("true", true), ("false", false)]);
    report_no_effect_without_json(fence, EXACT_NUMBERS, keys, once);
    written.unwrap_or_default()
}

/// Reports a fence that takes values from JSON and from a form, because no body is both.
pub(super) fn check_one_format(
    fence: &mut MappingReader,
    keys: Option<&[KeyTemplate]>,
    once: Option<&IdempotencyRule>,
) {
    let templates = || templates(keys, once);
    let form_field = templates().flat_map(KeyTemplate::form_fields).next();
    let pointer = templates().flat_map(KeyTemplate::pointers).next();
    let (Some(field), Some(pointer)) = (form_field, pointer) else { return };
    let message =
        format!("no request has both `{{form.{field}}}` and `{{body:{pointer}}}`: a body is a form or JSON");
    let remedy =
        "write a route for each: `headers: {content-type: application/json}` in the `match` of the one above";
    let place = if fence.is_present("keys") { "keys" } else { "key" };
    fence.report(place, Diagnostic::new(DiagnosticCode::TwoBodyFormats, message).with_remedy(remedy));
}

fn templates<'t>(
    keys: Option<&'t [KeyTemplate]>,
    once: Option<&'t IdempotencyRule>,
) -> impl Iterator<Item = &'t KeyTemplate> {
    keys.unwrap_or_default().iter().chain(once.into_iter().flat_map(IdempotencyRule::templates))
}

fn report_no_effect_without_json(
    fence: &mut MappingReader,
    field: &'static str,
    keys: Option<&[KeyTemplate]>,
    once: Option<&IdempotencyRule>,
) {
    let reads_json = templates(keys, once).flat_map(KeyTemplate::pointers).next().is_some();
    if fence.is_present(field) && keys.is_some() && !reads_json {
        let message = format!("`{field}` has no effect where no key stands in a JSON body");
        let remedy = "leave it out, or take a key from the body: `{body:/id}`";
        fence.report(field, Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy));
    }
}
