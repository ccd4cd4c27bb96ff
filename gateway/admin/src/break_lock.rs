//! Breaks a lock for an operator, and reports the removed nodes, also if ZooKeeper's answer about some of them was
//! lost.

use axum::{Extension, Json, extract::State};
use fencegate_lock::manager::admin_query::{AdminQueryError, BreakLockOutcome, LockQueueEntry};
use serde::Deserialize;

use super::{
    error::{AdminErrorCode, AdminRefusal},
    models::ActionResult,
};
use crate::{
    error::AuditAction,
    extract::{PathParam, RequestBodyBytes, parse_body},
    models::BreakLockResponse,
    state::GatewayAdminState,
};

/// The request of an operator to break a lock.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Breaking))]
pub(crate) struct BreakLockBody {
    /// The key again, so that a mistake in a script cannot break another lock.
    pub(super) confirm: String,
    /// The node to remove. Default: the node of the present holder.
    pub(super) holder: Option<String>,
    /// Break the lock even if nobody compares tokens.
    #[serde(default)]
    pub(super) force: bool,
}

pub(super) async fn break_lock(
    State(seen): State<GatewayAdminState>,
    PathParam(key): PathParam,
    body: RequestBodyBytes,
) -> ActionResult<BreakLockResponse> {
    let breaking: BreakLockBody = parse_body(&body)?;
    let (did, broken) = seen.break_lock(&key, breaking).await?;
    Ok((Extension(did), Json(BreakLockResponse { broken, key })))
}

impl GatewayAdminState {
    /// Breaks the lock of a key, and returns the removed nodes.
    pub(super) async fn break_lock(
        &self,
        text: &str,
        breaking: BreakLockBody,
    ) -> Result<(AuditAction, Vec<LockQueueEntry>), AdminRefusal> {
        let BreakLockBody { confirm, holder, force } = breaking;
        let names = self.key_redaction();
        let key = self.resolve_key(text)?;
        if confirm != text {
            return Err(AdminRefusal::new(AdminErrorCode::Confirm, "say the key once more in `confirm`"));
        }
        if !force && !self.config.all_services_compare_tokens(&key) {
            return Err(AdminRefusal::new(
                AdminErrorCode::Force,
                "with `fencing: none` nobody compares tokens: until its holder learns of it, both may be at work at \
                 once; say `force` if that is better than waiting",
            ));
        }
        let line = self.locks.queue_entries(&key, self.config.site(&key)).await?;
        let holders = line.into_iter().filter(|one| one.holds);
        let meant: Vec<LockQueueEntry> =
            holders.filter(|one| holder.as_ref().is_none_or(|node| *node == one.node)).collect();
        if meant.is_empty() {
            let message = "nobody holds it, or not the one that was meant any more; look again";
            return Err(AdminRefusal::new(AdminErrorCode::Changed, message));
        }
        let mut broken: Vec<LockQueueEntry> = Vec::new();
        for one in meant {
            let done = match self.locks.break_lock(&key, self.config.site(&key), one.node.clone()).await {
                Ok(BreakLockOutcome::Gone) => {
                    broken.push(one);
                    continue;
                }
                Ok(BreakLockOutcome::NotHolding) => continue,
                Ok(BreakLockOutcome::Unknown) => AdminQueryError::Unknown,
                Err(untold) => untold,
            };
            return Err(partial_break_error(&one, done, &broken, &names.display(&key)));
        }
        let did = AuditAction(format!("broke {}: {}", names.display(&key), node_names(&broken)));
        if broken.is_empty() {
            return Err(AdminRefusal::new(AdminErrorCode::Changed, "it was given back in the meantime"));
        }
        Ok((did, broken))
    }

    /// True if every service of this key compares tokens, so that a break cannot make two effects overlap.
    pub(super) fn services_compare_tokens(&self, text: &str) -> Result<bool, AdminRefusal> {
        let key = self.resolve_key(text)?;
        Ok(self.config.all_services_compare_tokens(&key))
    }
}

fn node_names(nodes: &[LockQueueEntry]) -> String {
    let nodes = nodes.iter().map(|one| format!("{} of {}", one.node, one.gateway.as_deref().unwrap_or("?")));
    nodes.collect::<Vec<_>>().join(", ")
}

/// The error of a break that stopped midway: some nodes were removed, the fate of one is unknown, and the
/// remaining ones were not tried.
fn partial_break_error(
    one: &LockQueueEntry,
    untold: AdminQueryError,
    broken: &[LockQueueEntry],
    key: &str,
) -> AdminRefusal {
    let last = node_names(std::slice::from_ref(one));
    let fault = AdminRefusal::from(untold);
    let nothing = fault.code == AdminErrorCode::Away;
    let of_the_last = if nothing { format!("not {last}") } else { format!("perhaps {last}") };
    match (broken, nothing) {
        ([], true) => fault,
        ([], false) => fault.with_action(AuditAction(format!("may have broken {key}: {last}"))),
        (broken, _) => {
            let broken = node_names(broken);
            let said = format!("broken: {broken}; {of_the_last}: {}; look again", fault.message);
            AdminRefusal::new(AdminErrorCode::Unknown, said)
                .with_action(AuditAction(format!("broke {key}: {broken}; {of_the_last}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use fencegate_lock::manager::admin_query::ContenderProgram;
    use fencegate_policies::plan::LockMode;

    use super::*;

    /// A break that fails midway reports the nodes that were broken, and whether the failed one may have been.
    #[test]
    fn partial_break_lists_broken_nodes() {
        let node = |name: &str| LockQueueEntry {
            node: name.into(),
            mode: LockMode::Shared,
            program: ContenderProgram::Fencegate,
            gateway: Some("gw-2".into()),
            session: "0".repeat(16),
            number: None,
            holds: true,
            permit: None,
            behind: None,
            made_ms: None,
        };
        let one = [node("one")];
        let other = node("other");
        let did = |untold, broken: &[LockQueueEntry]| {
            let fault = partial_break_error(&other, untold, broken, "k");
            (fault.code, fault.action.map(|did| did.0).unwrap_or_default())
        };
        assert_eq!(did(AdminQueryError::NoSession, &[]), (AdminErrorCode::Away, String::new()));
        assert_eq!(
            did(AdminQueryError::Unknown, &[]),
            (AdminErrorCode::Unknown, "may have broken k: other of gw-2".into())
        );
        let partly = "broke k: one of gw-2; not other of gw-2";
        assert_eq!(did(AdminQueryError::NoSession, &one), (AdminErrorCode::Unknown, partly.into()));
        let perhaps = "broke k: one of gw-2; perhaps other of gw-2";
        assert_eq!(
            did(AdminQueryError::Timeout(std::time::Duration::ZERO), &one),
            (AdminErrorCode::Unknown, perhaps.into())
        );
    }
}
