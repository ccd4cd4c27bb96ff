//! The state of a guard that its admin listener shows, and the requests whose outcome is unknown.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use fencegate_config::process_context::ProcessContext;
use fencegate_guard::{Guard, journal::ReserveUnresolvedOutcome};
use fencegate_guard_store::{
    admission::{InDoubtExecution, QuarantineReason, QuarantineScope, QuarantineStatus},
    error::DispatchRefusedError,
    operation::{OperationJournalEntry, ResolutionSource},
};
use fencegate_metrics::request_tracker::RejectedCallers;
use fencegate_policies::token::FencingToken;
use fencegate_process::{clock::BootInstant, key_redaction::KeyRedaction};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    auth::CsrfToken,
    error::{AdminErrorCode, AdminRefusal, AuditAction},
    extract::ResolvedOutcome,
};

/// The state of a guard that its admin listener shows, and the means to end the process.
#[derive(Clone)]
pub struct GuardAdminState {
    pub guard: Arc<Guard>,
    /// The callers that the guard rejected.
    pub rejected_callers: Arc<RejectedCallers>,
    pub process: Arc<ProcessContext>,
    /// Ends the process when all running work has ended.
    pub end: CancellationToken,
    pub csrf: CsrfToken,
    pub names: KeyRedaction,
    /// Allows one backup at a time.
    pub backups: Arc<Semaphore>,
}

/// An operation or execution whose outcome is unknown.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Open))]
pub struct GuardUnresolvedEntry {
    /// The name for operators: the reference of an operation, or the token of an execution without one.
    pub reference: String,
    pub kind: UnresolvedEntryKind,
    /// As the guard's file lets its log call them.
    pub keys: Vec<String>,
    pub token: FencingToken,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted: Option<u64>,
    /// How long until the keys are free again if nobody resolves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closes_key_for_ms: Option<u64>,
    /// The endpoint that has the request, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The endpoint does not answer, so no time passes until the keys are free.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub endpoint_silent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Kind))]
pub enum UnresolvedEntryKind {
    /// Happens at most once: no repeat is accepted before its outcome has been recorded.
    Operation,
    /// Closes its keys for a while, and is forgotten afterwards.
    Execution,
}

/// The most operations that are shown.
const MOST: usize = 1000;

impl GuardAdminState {
    /// All operations and executions with an unknown outcome.
    pub(crate) async fn unknown_outcomes(&self) -> Result<Vec<GuardUnresolvedEntry>, DispatchRefusedError> {
        let guard = &self.guard;
        let unfinished = guard.unresolved_operations(MOST).await?;
        let doubts = guard.doubts().await?;
        let known: HashMap<FencingToken, &InDoubtExecution> =
            doubts.iter().map(|doubt| (doubt.token, doubt)).collect();
        let closes =
            |token: FencingToken| u64::try_from(known.get(&token)?.until.since(guard.now()).as_millis()).ok();
        let endpoint = |token: FencingToken| Some(known.get(&token)?.place.as_ref()?.to_string());
        let silent = |token: FencingToken| known.get(&token).is_some_and(|doubt| doubt.silent);
        let names = self.names;
        let operation = |reference: String, entry: OperationJournalEntry| GuardUnresolvedEntry {
            reference,
            kind: UnresolvedEntryKind::Operation,
            closes_key_for_ms: closes(entry.token),
            endpoint: endpoint(entry.token),
            endpoint_silent: silent(entry.token),
            keys: names.display_each(&entry.keys),
            token: entry.token,
            method: Some(entry.method),
            target: names.shows_targets().then_some(entry.target),
            // The idempotency key may be the name of an order, so it is shown only where targets are shown.
            idempotency_key: entry.name.filter(|_| names.shows_targets()),
            admitted: Some(entry.admitted),
        };
        let mut open: Vec<GuardUnresolvedEntry> =
            unfinished.into_iter().map(|(id, entry)| operation(id.reference(), entry)).collect();
        let known: HashSet<FencingToken> = open.iter().map(|open| open.token).collect();
        open.extend(doubts.iter().filter(|doubt| !known.contains(&doubt.token)).map(|doubt| {
            GuardUnresolvedEntry {
                reference: doubt.token.to_string(),
                kind: UnresolvedEntryKind::Execution,
                keys: names.display_each(&doubt.keys),
                token: doubt.token,
                method: None,
                target: None,
                idempotency_key: None,
                admitted: None,
                closes_key_for_ms: closes(doubt.token),
                endpoint: endpoint(doubt.token),
                endpoint_silent: doubt.silent,
            }
        }));
        Ok(open)
    }

    /// Records the outcome that an operator knows.
    pub(crate) async fn resolve(
        &self,
        reference: &str,
        outcome: ResolvedOutcome,
        force: bool,
    ) -> Result<AuditAction, AdminRefusal> {
        let guard = &self.guard;
        let done = outcome == ResolvedOutcome::Done;
        let did = |what: &str| {
            AuditAction(format!("resolved {what} as {}", if done { "done" } else { "not done" }))
        };
        if let Ok(token) = FencingToken::parse(reference) {
            let doubts = guard.doubts().await.map_err(|refused| store_unavailable_error(&refused))?;
            let doubt = doubts.into_iter().find(|doubt| doubt.token == token);
            let doubt = doubt.ok_or_else(|| unknown_operation_error(reference))?;
            let over = guard.resolve_doubt(&doubt.keys, token, "operator").await;
            return match over.map_err(|refused| store_unavailable_error(&refused))? {
                true => Ok(did(&format!("execution {token}"))),
                false => Err(unknown_operation_error(reference)),
            };
        }
        let found =
            guard.find_by_reference(reference).await.map_err(|refused| store_unavailable_error(&refused))?;
        let (id, _) = found.ok_or_else(|| unknown_operation_error(reference))?;
        let taken =
            guard.reserve_unresolved(id).await.map_err(|refused| store_unavailable_error(&refused))?;
        let ReserveUnresolvedOutcome::Taken(reservation, entry) = taken else {
            return Err(unknown_operation_error(reference));
        };
        // A response of the service concerns the past: while the request may still begin, it may arrive after
        // that response.
        let begins = !done
            && guard.may_still_run(&entry).await.map_err(|refused| store_unavailable_error(&refused))?;
        if begins && !force {
            let message = format!(
                "operation {reference} may still be begun: ask the service again when its keys are free, or add `--force`"
            );
            return Err(AdminRefusal::new(AdminErrorCode::Force, message));
        }
        let over = guard.resolve_doubt(&entry.keys, entry.token, "operator").await;
        over.map_err(|refused| store_unavailable_error(&refused))?;
        let written = if done {
            reservation.resolve_done(&entry, ResolutionSource::Operator).await
        } else {
            reservation.resolve_not_done().await
        };
        written.map_err(|refused| store_unavailable_error(&refused))?;
        Ok(did(&format!("operation {reference} of token {}", entry.token)))
    }
}

/// One sentence with the closed keys, the reason and the remaining time.
pub(crate) fn quarantine_text(closed: QuarantineStatus, now: BootInstant) -> String {
    let left = closed.until.since(now);
    match closed.scope {
        QuarantineScope::Keys(1) => {
            format!("ready; 1 key was at work at an unclean stop, and is in quarantine for {left:.1?}")
        }
        QuarantineScope::Keys(keys) => {
            format!(
                "ready; {keys} keys were at work at an unclean stop, and are in quarantine for {left:.1?}"
            )
        }
        QuarantineScope::EveryKey(QuarantineReason::NewStore) => {
            format!(
                "in quarantine for {left:.1?}: the store is new, and another guard may have sent what still runs"
            )
        }
        QuarantineScope::EveryKey(QuarantineReason::Restored) => format!(
            "in quarantine for {left:.1?}: the store was made of a backup, and what was let in since then may still run"
        ),
        QuarantineScope::EveryKey(QuarantineReason::OlderBuild) => format!(
            "in quarantine for {left:.1?}: an older build kept the store, which did not note which keys are at work"
        ),
        QuarantineScope::EveryKey(QuarantineReason::RolledBack) => format!(
            "in quarantine for {left:.1?}: the database has lost what it had acknowledged, and what was let in may still run"
        ),
    }
}

pub(super) fn unknown_operation_error(what: &str) -> AdminRefusal {
    AdminRefusal::new(AdminErrorCode::NotFound, format!("nothing known of `{what}`, or it is running"))
}

pub(crate) fn store_unavailable_error(refused: &DispatchRefusedError) -> AdminRefusal {
    AdminRefusal::new(AdminErrorCode::Away, refused.to_string())
}
