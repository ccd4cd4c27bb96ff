//! Lets operators list the leases of this gateway, and end one.

use axum::{
    Extension,
    body::Bytes,
    extract::{Path, State},
    response::Response,
};
use fencegate_protocol::lease_documents::{LeaseList, RevokeLeaseBody};
use fencegate_refusal::{Refusal, RefusalReason};
use serde::Serialize;

use super::context::{LeaseApiState, LeaseCaller, json_response as document, parse_body};
use crate::{
    admin_actions::AdminLeaseActionError,
    lease::Lease,
    lease_json::{LeaseDocumentAudience, lease_document},
    lease_table::LeaseTable,
};

/// The answer to `revoke`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RevokedLease))]
pub struct RevokeLeaseResponse {
    /// Its reference.
    revoked: String,
}

/// The answer to `break`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = BrokenLease))]
pub struct BreakLeaseResponse {
    /// Its reference.
    broken: String,
}

pub(super) async fn list(
    State(interface): State<LeaseApiState>,
    Extension(caller): Extension<LeaseCaller>,
) -> Result<Response, Refusal> {
    let known = caller.require_principal()?;
    let theirs = |lease: &Lease| known.operator || lease.principal == known.name;
    Ok(document(&interface.leases.list(theirs)))
}

pub(super) async fn revoke(
    State(interface): State<LeaseApiState>,
    Extension(caller): Extension<LeaseCaller>,
    Path(reference): Path<String>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let operator = caller.require_operator()?;
    let RevokeLeaseBody { why } = parse_body(&body)?;
    interface.leases.request_release(&reference, &why, &operator.name).map(drop).or_else(action_refusal)?;
    Ok(document(&RevokeLeaseResponse { revoked: reference }))
}

pub(super) async fn break_lease(
    State(interface): State<LeaseApiState>,
    Extension(caller): Extension<LeaseCaller>,
    Path(reference): Path<String>,
) -> Result<Response, Refusal> {
    let operator = caller.require_operator()?;
    interface.leases.break_lease(&reference, None, &operator.name).map(drop).or_else(action_refusal)?;
    Ok(document(&BreakLeaseResponse { broken: reference }))
}

impl LeaseTable {
    /// The leases of this gateway that `meant` selects, without their secrets.
    pub fn list(&self, meant: impl Fn(&Lease) -> bool) -> LeaseList {
        let all = self.active();
        let meant = all.iter().filter(|lease| meant(lease));
        let leases = meant.map(|lease| lease_document(lease, self, LeaseDocumentAudience::Public)).collect();
        LeaseList { gateway: self.context.gateway.to_string(), leases }
    }
}

fn action_refusal(why: AdminLeaseActionError) -> Result<(), Refusal> {
    Err(match why {
        // The lease is over, which is the intended result.
        AdminLeaseActionError::Over => return Ok(()),
        AdminLeaseActionError::NotFound => {
            Refusal::new(RefusalReason::NoRoute, "no lease of this gateway is called so")
        }
        AdminLeaseActionError::InvalidReason => {
            let message = "`why` is a line of 1 to 256 bytes";
            Refusal::new(RefusalReason::Malformed, message).with_advice(message)
        }
    })
}
