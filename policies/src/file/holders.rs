//! Reads how many requests may hold a key at once (`permits`), and refuses fields that need a single holder.

use super::{mapping::MappingReader, scalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    permits::PermitCount,
    plan::{FencingLevel, ForeignLockLayout, LockModeRule, LockPlacement, NestedRequestPolicy},
};

const FIELD: &str = "permits";

/// The number of permits; `None` if the field is absent or invalid.
pub(super) fn parse_permits(fence: &mut MappingReader) -> Option<PermitCount> {
    fence.value(FIELD, permits)
}

fn permits(text: &str) -> Result<PermitCount, Diagnostic> {
    let count = scalar::count(text)?;
    let permits = u16::try_from(count).ok().and_then(PermitCount::new);
    permits.ok_or_else(|| {
        let least = PermitCount::LEAST;
        let most = PermitCount::MOST;
        let remedy = match count {
            0 | 1 => "leave it out: without `permits` one request at a time has the key".to_owned(),
            _ => format!("write a number from `{least}` to `{most}`"),
        };
        scalar::out_of_range(text, &remedy)
    })
}

/// The placement of the lock, with its permits. `permits` beside another layout or beside `migrate_from` is
/// reported elsewhere, and the file has no plan then.
pub(super) fn placement_with_permits(
    permits: Option<PermitCount>,
    placing: Option<LockPlacement>,
) -> Option<LockPlacement> {
    match (permits, placing?) {
        (Some(permits), LockPlacement::Native) => Some(LockPlacement::Semaphore { permits }),
        (_, placing) => Some(placing),
    }
}

/// The other fields of a fence that can contradict its permits.
pub(super) struct PermitParseContext {
    /// The level of the upstream, if it is known.
    pub(super) level: Option<FencingLevel>,
    pub(super) mode: LockModeRule,
    pub(super) foreign: Option<ForeignLockLayout>,
    pub(super) nested: Option<NestedRequestPolicy>,
    /// True if a request may have several keys because of a list.
    pub(super) has_list: bool,
}

/// Reports the fields that a fence with permits cannot have.
pub(super) fn report_fields_excluded_by_permits(fence: &mut MappingReader, beside: &PermitParseContext) {
    if beside.mode != LockModeRule::Exclusive {
        let message = format!("`mode: {}` does not exist with `permits`", beside.mode.as_str());
        let remedy =
            "write `mode: exclusive` here, in `defaults` too: each holder has a permit that nobody shares";
        let field = if fence.is_present("mode") { "mode" } else { FIELD };
        report_excluded_field(fence, field, &message, remedy);
    }
    if fence.is_present("keys") || beside.has_list {
        let field = if fence.is_present("keys") { "keys" } else { "key" };
        let remedy =
            "write one `key`: two requests could each hold a permit of one key and wait for the other key";
        report_excluded_field(fence, field, "a set of keys has no `permits`", remedy);
    }
    if let Some(layout) = beside.foreign {
        let message = format!("`permits` do not exist with `layout: {}`", layout.as_str());
        report_excluded_field(
            fence,
            "layout",
            &message,
            "leave one of them out: other programs know nothing of permits",
        );
    }
    if fence.is_present("once") {
        let message = "operations that happen at most once do not exist with `permits`";
        let remedy = "leave one of them out: two requests with one operation would be at work at once, under two permits";
        report_excluded_field(fence, "once", message, remedy);
    }
    if beside.nested == Some(NestedRequestPolicy::Allow) && fence.is_present("nested") {
        let remedy = "write `nested: ignore`: a service shows the token of one permit, and would call for the key of all";
        report_excluded_field(fence, "nested", "calls back do not exist with `permits`", remedy);
    }
    if beside.level.and_then(FencingLevel::handover_delay).is_some() {
        let message = "`fencing: delay` is for keys that one request has alone: the record in ZooKeeper names one holder";
        report_excluded_field(
            fence,
            FIELD,
            message,
            "leave `permits` out, or put a guard beside the service",
        );
    }
}

fn report_excluded_field(fence: &mut MappingReader, field: &'static str, message: &str, remedy: &str) {
    fence.report(field, Diagnostic::new(DiagnosticCode::NotWithPermits, message).with_remedy(remedy));
}
