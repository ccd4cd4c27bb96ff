//! What operators see and do: all leases of this gateway, and an end to one of them.

use axum::{
    Extension,
    body::Bytes,
    extract::{Path, State},
    response::Response,
};
use serde::Serialize;
use tracing::info;

use super::setting::{Applicant, Interface, json as document, read};
use crate::{
    leases::{
        holdings::Leases,
        id::Reference,
        lease::{Lease, Why},
        lease_json::{LeaseDocument, LeaseList, Reader, Revocation},
    },
    refusal::{Reason, Refusal},
};

/// Bytes of what the client is told.
const LONGEST: usize = 256;

/// The answer to `revoke`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(crate) struct RevokedLease {
    /// Its reference.
    revoked: String,
}

/// The answer to `break`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(crate) struct BrokenLease {
    /// Its reference.
    broken: String,
}

pub(super) async fn list(
    State(interface): State<Interface>,
    Extension(applicant): Extension<Applicant>,
) -> Result<Response, Refusal> {
    let known = applicant.known()?;
    let theirs = |lease: &Lease| known.operator || lease.principal == known.name;
    Ok(document(&interface.leases.list(theirs)))
}

pub(super) async fn revoke(
    State(interface): State<Interface>,
    Extension(applicant): Extension<Applicant>,
    Path(reference): Path<String>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let operator = applicant.operator()?;
    let Revocation { why } = read(&body)?;
    interface.leases.revoke(&reference, &why, &operator.name)?;
    Ok(document(&RevokedLease { revoked: reference }))
}

pub(super) async fn break_lease(
    State(interface): State<Interface>,
    Extension(applicant): Extension<Applicant>,
    Path(reference): Path<String>,
) -> Result<Response, Refusal> {
    let operator = applicant.operator()?;
    interface.leases.break_off(&reference, &operator.name)?;
    Ok(document(&BrokenLease { broken: reference }))
}

impl Leases {
    /// Those of this gateway that `meant` says yes to, without their secrets.
    pub fn list(&self, meant: impl Fn(&Lease) -> bool) -> LeaseList {
        let all = self.living();
        let meant = all.iter().filter(|lease| meant(lease));
        let leases = meant.map(|lease| LeaseDocument::of(lease, self, Reader::Others)).collect();
        LeaseList { gateway: self.gateway.to_string(), leases }
    }

    /// Asks the client of a lease to give it back: it sees so when it renews, and at once where it watches.
    ///
    /// # Errors
    /// There is none of that name here, or `why` is no line.
    pub fn revoke(&self, reference: &str, why: &str, operator: &str) -> Result<(), Refusal> {
        if why.is_empty() || why.len() > LONGEST || why.chars().any(char::is_control) {
            let said = "`why` is a line of 1 to 256 bytes";
            return Err(Refusal::new(Reason::Malformed, said).advising(said));
        }
        let lease = self.named(reference)?;
        lease.revoke(why.into());
        info!(lease = reference, operator, "lease.revoked");
        Ok(())
    }

    /// Ends a lease without its client. What runs under it runs on, and the lock is given on after that.
    ///
    /// # Errors
    /// There is none of that name here.
    pub fn break_off(&self, reference: &str, operator: &str) -> Result<(), Refusal> {
        let lease = self.named(reference)?;
        self.end(&lease, Why::Broken);
        info!(lease = reference, operator, "lease.broken");
        Ok(())
    }

    fn named(&self, reference: &str) -> Result<std::sync::Arc<Lease>, Refusal> {
        let lease = Reference::parse(reference).and_then(|reference| self.look_up(reference));
        lease.ok_or_else(|| Refusal::new(Reason::NoRoute, "no lease of this gateway is called so"))
    }
}
