//! Reads the fence of a route: the key that its requests lock, and how. `fence: none` means no lock.

use std::{slice, time::Duration};

use super::{
    conflicts::conflicts,
    delay, former_lock,
    hold::{self, LockRecipeKind},
    holders::{self, PermitParseContext},
    key::{self, TemplateContext, TemplateKind},
    large_bodies::{body_type, check_one_format, exact_numbers, large_bodies},
    layout::{self, PartialLockLayout},
    lease_use,
    lists::{self, KeyListCheckContext},
    mapping::MappingReader,
    nested::parse_nested_policy,
    once::{self, IdempotencyParseContext},
    only, peer_forwarding, scalar,
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    key::KeyTemplate,
    plan::{
        Enforcement, FenceRule, FencingLevel, IdempotencyRule, LockModeRule, NestedRequestPolicy,
        PeerForwardPolicy,
    },
};

/// A fence, with the places of the fields that later checks report.
pub(super) struct ParsedFence {
    pub(super) fence: FenceRule,
    /// The place of `hold`, or of the key if there is no `hold`.
    pub(super) place: SourceSpan,
    /// The place of `lock_path`, or of the key if there is no `lock_path`.
    pub(super) placed: SourceSpan,
    /// The place of `lease`, or of the fence if there is no `lease`.
    pub(super) leased: SourceSpan,
}

/// The fields that `defaults` can set for every fence.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FenceDefaults {
    wait: Option<Duration>,
    queue: Option<usize>,
    client_share: Option<usize>,
    hold: hold::ParsedHoldPolicy,
    mode: Option<LockModeRule>,
    enforce: Option<Enforcement>,
    forward: Option<PeerForwardPolicy>,
    nested: Option<NestedRequestPolicy>,
    /// True if the file has a peer listener.
    reached: bool,
    /// True if the file has a key that signs tickets.
    signs: bool,
}

impl FenceDefaults {
    /// Reads `defaults`. `reached`: the file has a peer listener. `signs`: the file has a key that signs tickets.
    pub(super) fn read_defaults(file: &mut MappingReader, reached: bool, signs: bool) -> Self {
        let nothing = Self { reached, signs, ..Self::default() };
        file.read_inner("defaults", |block| Self::read(block, &nothing, LockRecipeKind::OneKey))
            .unwrap_or(nothing)
    }

    /// Reads the fields of `block`. Absent fields take their values from `inherited`.
    fn read(block: &mut MappingReader, inherited: &Self, of: LockRecipeKind) -> Self {
        Self {
            wait: block.value("wait", scalar::duration).or(inherited.wait),
            queue: block.value("queue", queue).or(inherited.queue),
            client_share: block.value("client_share", scalar::limit).or(inherited.client_share),
            hold: hold::ParsedHoldPolicy::read(block, &inherited.hold, of),
            mode: block.keyword("mode", LockModeRule::WORDS).or(inherited.mode),
            enforce: parse_enforcement(block).or(inherited.enforce),
            forward: peer_forwarding::parse_forward(block, inherited.reached).or(inherited.forward),
            nested: parse_nested_policy(block, inherited.signs).or(inherited.nested),
            reached: inherited.reached,
            signs: inherited.signs,
        }
    }
}

/// Reads `enforce`, and warns of `observe`, so that the end of a migration is not forgotten.
fn parse_enforcement(block: &mut MappingReader) -> Option<Enforcement> {
    let written = block.keyword("enforce", Enforcement::WORDS);
    if written == Some(Enforcement::Observe) {
        let message = "requests that should be refused pass and are reported: nothing is promised here";
        let remedy = "write `refuse` once nothing is reported any more that should have passed";
        block.report("enforce", Diagnostic::new(DiagnosticCode::Observed, message).with_remedy(remedy));
    }
    written
}

/// Reads `fence`: `Some(None)` for `fence: none`; `None` if the field is absent or invalid. `level`: the level of the
/// upstream, if it is known.
pub(super) fn fence(
    route: &mut MappingReader,
    naming: &TemplateContext,
    level: Option<FencingLevel>,
    defaults: &FenceDefaults,
) -> Option<Option<ParsedFence>> {
    // `fence` is required, so that a route whose author forgot it is not left without a lock.
    route.require("fence", "fence: none` or `fence: {key: ...}");
    if route.is_mapping("fence") {
        return route
            .read_inner("fence", |block| parse_fence(block, naming, level, defaults))
            .flatten()
            .map(Some);
    }
    route.value("fence", |text| match text {
        "none" => Ok(None),
        _ => {
            let key = if text.contains(['{', '/']) { text } else { "order/{path.order_id}" };
            Err(Diagnostic::new(DiagnosticCode::UnknownValue, format!("`{text}` is not a fence"))
                .with_remedy(format!("write `none`, or a mapping with a key: `{{key: \"{key}\"}}`")))
        }
    })
}

fn parse_fence(
    block: &mut MappingReader,
    naming: &TemplateContext,
    level: Option<FencingLevel>,
    defaults: &FenceDefaults,
) -> Option<ParsedFence> {
    let max_keys = lists::parse_max_keys(block);
    let naming = &TemplateContext { only: only::parse_max_list_items(block), max_keys, ..*naming };
    let layout = PartialLockLayout::read(block);
    let permits = holders::parse_permits(block);
    let former = former_lock::parse_former(block, naming);
    let keys = key::keys(block, naming);
    let has_list = keys.iter().flatten().any(|key| key.has_list());
    // A lock that is migrated is taken together with its former lock, in the way in which a set of keys is taken.
    let both = block.is_present("keys") || block.is_present("migrate_from") || has_list;
    let of = LockRecipeKind::recipe_for_fence(both, layout.foreign_layout(), permits.is_some());
    let placing = holders::placement_with_permits(permits, layout.placement(block, naming, keys.as_deref()));
    let terms = FenceDefaults::read(block, defaults, of);
    let mode = terms.mode.unwrap_or_default();
    let enforce = terms.enforce.unwrap_or_default();
    layout::check_shared_mode(block, layout.foreign_layout(), mode);
    if let (Some(Some(former)), Some(keys), Some(placing)) = (&former, &keys, &placing) {
        layout::check_shared_mode(block, former.placing.layout().foreign_layout(), mode);
        former_lock::check_former_lock(block, former, keys, placing);
    }
    if permits.is_some() {
        let foreign = layout.foreign_layout();
        let nested = terms.nested;
        holders::report_fields_excluded_by_permits(
            block,
            &PermitParseContext { level, mode, foreign, nested, has_list },
        );
    }
    let client_share_by = client_share_by(block, naming, terms.client_share);
    let once = once::once(block, naming, &IdempotencyParseContext { level, mode, enforce });
    let names = once.iter().flatten().flat_map(IdempotencyRule::templates).map(slice::from_ref);
    let formers = former.iter().flatten().map(|former| slice::from_ref(&former.key));
    only::check_unnamed_items(
        block,
        naming.only,
        &keys.as_deref().into_iter().chain(formers).chain(names).collect::<Vec<_>>(),
    );
    let locked_status = block.value("locked_status", locked_status);
    let max_response = block.value("max_response", scalar::size);
    let former_key = former.iter().flatten().map(|former| former.key.clone());
    let body_keys: Option<Vec<_>> =
        keys.as_ref().map(|keys| keys.iter().cloned().chain(former_key).collect());
    let large_bodies = large_bodies(block, body_keys.as_deref(), once.as_ref().and_then(Option::as_ref));
    let conflicts = conflicts(block);
    let lease = lease_use::parse_lease_use(block);
    let empty = lists::parse_empty(block);
    let lists = KeyListCheckContext {
        keys: keys.as_deref(),
        former: former.as_ref().and_then(Option::as_ref),
        max_keys,
        empty,
        level,
        lease,
    };
    lists::check_lists(block, &lists);
    let named = once.as_ref().and_then(Option::as_ref);
    let body_type = body_type(block, body_keys.as_deref(), named);
    let exact_numbers = exact_numbers(block, body_keys.as_deref(), named);
    check_one_format(block, body_keys.as_deref(), named);
    let field = if block.is_present("hold") { "hold" } else { "key" };
    let place = block.place_of(field);
    let field = if block.is_present("lock_path") { "lock_path" } else { "key" };
    let placed = block.place_of(field);
    let leased = block.place_of("lease");
    let default = FenceRule::with_defaults(keys?);
    let mut fence = FenceRule {
        set: of == LockRecipeKind::Set,
        placing: placing?,
        former: former?,
        mode,
        wait: terms.wait.unwrap_or(default.wait),
        queue: terms.queue.unwrap_or(default.queue),
        client_share: terms.client_share,
        client_share_by: client_share_by?,
        hold: terms.hold.resolve(of),
        // A `nested` in `defaults` is meant for other fences; it is ignored on a fence with permits, which cannot have
        // it.
        nested: terms.nested.filter(|_| permits.is_none()).unwrap_or_default(),
        locked_status: locked_status.unwrap_or(default.locked_status),
        max_response: max_response.unwrap_or(default.max_response),
        large_bodies,
        body_type,
        exact_numbers,
        only: naming.only,
        max_keys,
        empty,
        conflicts,
        enforce,
        once: once?,
        lease,
        client_name: None,
        // `forward` is resolved below, because it depends on the other fields.
        ..default
    };
    fence.client_name = naming.identities.client_name().filter(|_| fence.reads_client_name());
    lease_use::check_lease_use(block, &fence, level);
    let former = fence.former.as_ref().and_then(|former| former.placing.layout().foreign_layout());
    let delayed = delay::check_delay_fence_fields(
        block,
        level,
        mode,
        layout.foreign_layout().or(former),
        terms.forward,
    );
    fence.forward = delayed.unwrap_or_else(|| peer_forwarding::resolve_forward(block, terms.forward, &fence));
    Some(ParsedFence { fence, place, placed, leased })
}

/// The template that identifies a client for `client_share`: `Some(None)` if clients are identified by their addresses,
/// `None` if the template is invalid. Values that are not verified are reported.
fn client_share_by(
    block: &mut MappingReader,
    naming: &TemplateContext,
    share: Option<usize>,
) -> Option<Option<KeyTemplate>> {
    let faults = block.faults();
    let naming = TemplateContext { what: TemplateKind::Client, ..*naming };
    let scalar = block.scalar("client_share_by");
    if !block.is_present("client_share_by") {
        return Some(None);
    }
    let scalar = scalar?;
    let template = key::template(scalar, &naming, faults)?;
    if share.is_none() {
        let message = "`client_share_by` has no effect without `client_share`";
        let remedy = "add `client_share: 20`, or leave it out";
        block.report(
            "client_share_by",
            Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy),
        );
    }
    let is_constant = template.variables().next().is_none();
    if is_constant || template.variables().any(|variable| !variable.source.is_verified()) {
        let message = format!("the shares of {} are given to what clients choose to be", naming.route);
        let remedy = "write what is verified: `{client.name}`, or `{jwt:/sub}`; without the field a client is its address";
        block.report(
            "client_share_by",
            Diagnostic::new(DiagnosticCode::ChosenShare, message).with_remedy(remedy),
        );
    }
    Some(Some(template))
}

fn queue(text: &str) -> Result<usize, Diagnostic> {
    match scalar::count(text)? {
        0 => Err(Diagnostic::new(
            DiagnosticCode::EmptyQueue,
            "a queue without a place turns even a lone request away",
        )
        .with_remedy("write at least `1`; with `wait: 0s` nobody waits")),
        places => Ok(places),
    }
}

/// Reads a status that tells a client to come back later, and after which no proxy repeats the request by itself.
fn locked_status(text: &str) -> Result<u16, Diagnostic> {
    match text {
        "423" => Ok(423),
        "409" => Ok(409),
        "429" => Ok(429),
        "503" => Ok(503),
        _ => Err(Diagnostic::new(
            DiagnosticCode::LockedStatus,
            format!("`{text}` does not tell a client that a key is held"),
        )
        .with_remedy("there are `423`, `409`, `429`, `503`")),
    }
}
