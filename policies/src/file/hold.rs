//! Reads how long a gateway keeps a key between requests. `defaults` may have set some fields for all fences.

use std::time::Duration;

use super::{mapping::MappingReader, scalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{CachedHoldLimits, ForeignLockLayout, LockReusePolicy},
};

/// The fields of `hold` that a fence or `defaults` has set.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ParsedHoldPolicy {
    kept: Option<LockCachingMode>,
    linger: Option<Duration>,
    max_local: Option<u32>,
    max_hold: Option<Duration>,
    max_tenure: Option<Duration>,
}

/// The value of the field `mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockCachingMode {
    Strict,
    Cached,
}

/// The kind of lock that a fence takes, as far as it limits `hold`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockRecipeKind {
    OneKey,
    Set,
    /// A lock for which other programs wait in the same queue.
    Foreign,
    /// A single node without a queue, so that the holder cannot see waiters.
    ExclusiveNode,
    /// One of several permits of a key.
    Permit,
}

impl LockRecipeKind {
    pub(super) fn recipe_for_fence(set: bool, layout: Option<ForeignLockLayout>, permits: bool) -> Self {
        match layout {
            _ if set => Self::Set,
            Some(ForeignLockLayout::ExclusiveNode) => Self::ExclusiveNode,
            Some(_) => Self::Foreign,
            None if permits => Self::Permit,
            None => Self::OneKey,
        }
    }
}

impl ParsedHoldPolicy {
    /// Reads the fields of `hold`. Absent fields take their values from `inherited`.
    pub(super) fn read(block: &mut MappingReader, inherited: &Self, of: LockRecipeKind) -> Self {
        block.read_inner("hold", |block| hold(block, inherited, of)).unwrap_or(*inherited)
    }

    pub(super) fn resolve(self, of: LockRecipeKind) -> LockReusePolicy {
        let default = CachedHoldLimits::default();
        match (of, self.kept) {
            // The nodes of a set are made in one transaction, and the next request needs another set. The holder of
            // one permit does not block a particular waiter, so it gets no signal to release the permit.
            (LockRecipeKind::Set | LockRecipeKind::ExclusiveNode | LockRecipeKind::Permit, _)
            | (_, Some(LockCachingMode::Strict)) => LockReusePolicy::Strict,
            // Other programs make one node per request in this queue, so the gateway does the same by default.
            (LockRecipeKind::Foreign, None) => LockReusePolicy::Strict,
            (LockRecipeKind::Foreign | LockRecipeKind::OneKey, Some(LockCachingMode::Cached))
            | (LockRecipeKind::OneKey, None) => LockReusePolicy::Cached(CachedHoldLimits {
                linger: self.linger.unwrap_or(default.linger),
                max_local: self.max_local.unwrap_or(default.max_local),
                max_hold: self.max_hold.unwrap_or(default.max_hold),
                max_tenure: self.max_tenure.unwrap_or(default.max_tenure),
            }),
        }
    }
}

fn hold(block: &mut MappingReader, inherited: &ParsedHoldPolicy, of: LockRecipeKind) -> ParsedHoldPolicy {
    let mode =
        block.keyword("mode", &[("cached", LockCachingMode::Cached), ("strict", LockCachingMode::Strict)]);
    let written = ParsedHoldPolicy {
        kept: mode.or(inherited.kept),
        linger: block.value("linger", scalar::duration).or(inherited.linger),
        max_local: block.value("max_local", max_local).or(inherited.max_local),
        max_hold: block.value("max_hold", scalar::time_limit).or(inherited.max_hold),
        max_tenure: block.value("max_tenure", scalar::time_limit).or(inherited.max_tenure),
    };
    match (of, mode, written.resolve(of)) {
        (LockRecipeKind::Set, Some(LockCachingMode::Cached), _) => report_cached_key_set(block),
        (LockRecipeKind::ExclusiveNode, Some(LockCachingMode::Cached), _) => report_cached_node(block),
        (LockRecipeKind::Permit, Some(LockCachingMode::Cached), _) => report_cached_permit(block),
        (_, _, LockReusePolicy::Strict) => report_no_effect(block, of),
        (_, _, LockReusePolicy::Cached(caching)) => report_beyond_tenure(block, caching),
    }
    written
}

fn report_cached_key_set(block: &mut MappingReader) {
    let fault = Diagnostic::new(DiagnosticCode::CachedSet, "a set of keys cannot be kept between requests");
    block.report("mode", fault.with_remedy("leave `hold` out, or write `mode: strict`"));
}

fn report_cached_node(block: &mut MappingReader) {
    let message = "a key cannot be kept between requests with `layout: exclusive-node`: the holder cannot see who waits";
    let fault = Diagnostic::new(DiagnosticCode::NotInLayout, message);
    block.report("mode", fault.with_remedy("leave `hold` out, or write `mode: strict`"));
}

fn report_cached_permit(block: &mut MappingReader) {
    let message =
        "a permit cannot be kept between requests: no holder can see that it is the one who has to give way";
    let fault = Diagnostic::new(DiagnosticCode::NotWithPermits, message);
    block.report("mode", fault.with_remedy("leave `hold` out, or write `mode: strict`"));
}

fn report_no_effect(block: &mut MappingReader, of: LockRecipeKind) {
    let (reason, remedy) = match of {
        LockRecipeKind::OneKey => ("with `mode: strict`", "leave it out, or write `mode: cached`"),
        LockRecipeKind::Foreign => {
            ("on a lock of other programs without `mode: cached`", "leave it out, or write `mode: cached`")
        }
        LockRecipeKind::ExclusiveNode => (
            "with `layout: exclusive-node`",
            "leave it out: the node goes when its request is over, for nobody sees who waits for it",
        ),
        LockRecipeKind::Permit => {
            ("with `permits`", "leave it out: a permit is given back after its request")
        }
        LockRecipeKind::Set => ("on a set of keys", "leave it out: a set is given back after its request"),
    };
    for field in ["linger", "max_local", "max_hold", "max_tenure"] {
        if block.is_present(field) {
            let fault =
                Diagnostic::new(DiagnosticCode::NoEffect, format!("`{field}` has no effect {reason}"));
            block.report(field, fault.with_remedy(remedy));
        }
    }
}

fn report_beyond_tenure(block: &mut MappingReader, caching: CachedHoldLimits) {
    let longest = scalar::format_duration(caching.max_tenure);
    for (field, duration) in [("linger", caching.linger), ("max_hold", caching.max_hold)] {
        // If the fence has neither field, both values are from `defaults`, where the mistake was reported.
        let here = [field, "max_tenure"].into_iter().find(|field| block.is_present(field));
        if let Some(here) = here
            && duration > caching.max_tenure
        {
            let written = scalar::format_duration(duration);
            let message = format!("a `{field}` of {written} is longer than a `max_tenure` of {longest}");
            let fault = Diagnostic::new(DiagnosticCode::BeyondTenure, message);
            block.report(here, fault.with_remedy("a key is never kept for longer than `max_tenure`"));
        }
    }
}

fn max_local(text: &str) -> Result<u32, Diagnostic> {
    match u32::try_from(scalar::count(text)?).unwrap_or(u32::MAX) {
        0 => Err(scalar::out_of_range(text, "write at least `1`; with `mode: strict` nothing is kept")),
        requests => Ok(requests),
    }
}
