//! Reads what happens to bodies that are too large to be buffered in full, and which content type a body must have if
//! a key is taken from it.

use super::{mapping::MappingReader, scalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    key::KeyTemplate,
    plan::{BodyTypeRequirement, IdempotencyRule, LargeBodyPolicy},
};

/// `keys`, with the former one, and `once` of the same fence, as far as they are known.
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
        (Some(keys), None) if keys.iter().any(reads_body) => Some("the key stands in the body"),
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

/// `keys`, with the former one, and `once` of the same fence, as far as they are known.
pub(super) fn body_type(
    fence: &mut MappingReader,
    keys: Option<&[KeyTemplate]>,
    once: Option<&IdempotencyRule>,
) -> BodyTypeRequirement {
    let written = fence.keyword("body_type", BodyTypeRequirement::WORDS);
    let mut templates =
        keys.unwrap_or_default().iter().chain(once.into_iter().flat_map(IdempotencyRule::templates));
    if written.is_some() && keys.is_some() && !templates.any(reads_body) {
        let fault = Diagnostic::new(
            DiagnosticCode::NoEffect,
            "`body_type` has no effect where no key stands in the body",
        );
        fence.report(
            "body_type",
            fault.with_remedy("leave it out, or take a key from the body: `{body:/id}`"),
        );
    }
    written.unwrap_or_default()
}

fn reads_body(template: &KeyTemplate) -> bool {
    template.pointers().next().is_some()
}
