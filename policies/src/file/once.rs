//! Reads which requests of a route are operations that happen at most once.

use super::{
    key::{self, TemplateContext, TemplateKind},
    mapping::MappingReader,
    scalar,
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    key::{KeyTemplate, TemplateValueSource},
    plan::{
        Enforcement, FencingLevel, IdempotencyRule, IdempotencyStore, LockModeRule, OperationEndStatus,
        OperationQuota,
    },
};

/// The other settings of a fence that can contradict `once`.
pub(super) struct IdempotencyParseContext {
    /// The level of the upstream; `None` if the upstream is not known.
    pub(super) level: Option<FencingLevel>,
    pub(super) mode: LockModeRule,
    pub(super) enforce: Enforcement,
}

/// Reads `once`: `Some(None)` if the fence has no `once`, `None` if it is invalid.
pub(super) fn once(
    fence: &mut MappingReader,
    naming: &TemplateContext,
    fencing: &IdempotencyParseContext,
) -> Option<Option<IdempotencyRule>> {
    if !fence.is_present("once") {
        return Some(None);
    }
    check_shared(fence, fencing);
    report_unenforced_once(fence, fencing);
    fence.read_inner("once", |block| parse_once_rule(block, naming, fencing))?.map(Some)
}

fn parse_once_rule(
    block: &mut MappingReader,
    naming: &TemplateContext,
    fencing: &IdempotencyParseContext,
) -> Option<IdempotencyRule> {
    let store = block.keyword("store", IdempotencyStore::WORDS);
    let store = resolve_store(block, store, fencing.level);
    let operation = TemplateContext { what: TemplateKind::Operation, ..*naming };
    let key = if block.is_present("key") {
        template(block, "key", &operation)
    } else {
        Some(IdempotencyRule::default_key())
    };
    check_constant(block, key.as_ref(), naming);
    let whose = block.is_present("principal");
    let principal =
        template(block, "principal", &TemplateContext { what: TemplateKind::Principal, ..*naming });
    warn_chosen_principal(block, principal.as_ref(), naming);
    let scope = block.value("scope", scalar::name);
    let required = block.keyword("required", &[("true", true), ("false", false)]);
    let keep = block.value("keep", scalar::keep);
    let finals = block.values("final", final_status);
    let memory = parse_operation_quota(block, store, whose);
    if whose && principal.is_none() {
        return None;
    }
    Some(IdempotencyRule {
        store: store?,
        key: key?,
        principal,
        scope: scope.unwrap_or_default(),
        required: required.unwrap_or(true),
        keep: keep.unwrap_or(IdempotencyRule::KEEP),
        finals: finals.unwrap_or_default(),
        memory,
    })
}

/// Reads a status that the policy may declare final. All other statuses have a fixed meaning.
pub(super) fn final_status(text: &str) -> Result<u16, Diagnostic> {
    let remedy =
        "there are 401, 403, 408, 421, 425, 429 and those from 500 to 599; all others always are an end";
    let status = scalar::status(text, 400..=599, remedy)?;
    match OperationEndStatus::from_status(status, &[]) {
        OperationEndStatus::Final => scalar::status(text, 500..=599, remedy),
        OperationEndStatus::NotStarted | OperationEndStatus::Unknown => Ok(status),
    }
}

/// Reads the quotas of operations. `whose`: `once` has a `principal`.
fn parse_operation_quota(
    block: &mut MappingReader,
    store: Option<IdempotencyStore>,
    whose: bool,
) -> OperationQuota {
    let route = block.value("share", scalar::limit);
    let client = block.value("client_share", scalar::limit);
    for field in ["share", "client_share"] {
        if !block.is_present(field) {
            continue;
        }
        let (reason, remedy) = match (store, field) {
            (Some(IdempotencyStore::Guard), _) => {
                ("beside a guard, which has room of its own", "leave it out")
            }
            (_, "client_share") if !whose => {
                ("without `principal`, which tells clients apart", "write `principal`, or leave it out")
            }
            _ => continue,
        };
        let fault = Diagnostic::new(DiagnosticCode::NoEffect, format!("`{field}` has no effect {reason}"));
        block.report(field, fault.with_remedy(remedy));
    }
    OperationQuota {
        route: route.unwrap_or(IdempotencyRule::SHARE),
        client: whose.then(|| client.unwrap_or(IdempotencyRule::CLIENT_SHARE)),
    }
}

fn template(block: &mut MappingReader, field: &'static str, naming: &TemplateContext) -> Option<KeyTemplate> {
    let faults = block.faults();
    key::template(block.scalar(field)?, naming, faults)
}

/// The store that fits the level of the upstream: a guard stores the operations that it admits, and ZooKeeper stores
/// those of upstreams without a guard. Another one is reported.
fn resolve_store(
    block: &mut MappingReader,
    store: Option<IdempotencyStore>,
    level: Option<FencingLevel>,
) -> Option<IdempotencyStore> {
    let fit = match level? {
        FencingLevel::Guard => IdempotencyStore::Guard,
        FencingLevel::None | FencingLevel::Delay(_) | FencingLevel::Upstream => IdempotencyStore::ZooKeeper,
    };
    let (message, remedy) = match store.unwrap_or(fit) {
        store if store == fit => return Some(fit),
        IdempotencyStore::Guard => (
            "no guard stands before this upstream that could remember operations",
            "write `zookeeper`, or put a guard beside the upstream and write `fencing: guard` on it",
        ),
        IdempotencyStore::ZooKeeper => (
            "the guard before this upstream remembers operations, and knows what became of them",
            "write `guard`, or leave `store` out",
        ),
    };
    block.report("store", Diagnostic::new(DiagnosticCode::OnceStore, message).with_remedy(remedy));
    None
}

/// Warns if clients choose their own principal although an identity is verified. Such a client can use the operation
/// names of another client, and learn the outcomes of its operations.
fn warn_chosen_principal(
    block: &mut MappingReader,
    principal: Option<&KeyTemplate>,
    naming: &TemplateContext,
) {
    let Some(verified) = naming.identities.verified_variable() else { return };
    let mut sources =
        principal.into_iter().flat_map(KeyTemplate::variables).map(|variable| &variable.source).peekable();
    if sources.peek().is_some() && !sources.any(TemplateValueSource::is_verified) {
        let message = format!(
            "the principal of {} is whoever a client says it is, and it is verified here who that is",
            naming.route
        );
        let remedy = format!("write `{verified}`, unless a proxy before the gateway has verified this value");
        block.report(
            "principal",
            Diagnostic::new(DiagnosticCode::ChosenPrincipal, message).with_remedy(remedy),
        );
    }
}

fn check_constant(block: &mut MappingReader, key: Option<&KeyTemplate>, naming: &TemplateContext) {
    if key.is_some_and(|key| key.variables().next().is_none()) {
        let message =
            format!("all requests of {} would be one operation: its name has no variable", naming.route);
        let remedy =
            "write `\"{header.idempotency-key}\"`, or whatever differs from one operation to the next";
        block.report("key", Diagnostic::new(DiagnosticCode::OneOperation, message).with_remedy(remedy));
    }
}

fn check_shared(fence: &mut MappingReader, fencing: &IdempotencyParseContext) {
    if fencing.mode == LockModeRule::Shared {
        let message = "`once` is for requests that change something, and those of a shared key only read";
        let remedy = "write `mode: exclusive`, or leave `once` out";
        fence.report("once", Diagnostic::new(DiagnosticCode::OnceShared, message).with_remedy(remedy));
    }
}

fn report_unenforced_once(fence: &mut MappingReader, fencing: &IdempotencyParseContext) {
    if fencing.enforce == Enforcement::Observe {
        let message = "with `enforce: observe`, a repeated operation is reported and happens again";
        let remedy = "write `enforce: refuse` for a route whose operations must happen at most once";
        fence.report("once", Diagnostic::new(DiagnosticCode::Observed, message).with_remedy(remedy));
    }
}
