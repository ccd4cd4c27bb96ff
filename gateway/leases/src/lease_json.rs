//! Makes the document of a lease for its client, or for others.

use fencegate_guard_client::ticket_issuer::TicketIssuer;
use fencegate_policies::permits::PermitIndex;
use fencegate_protocol::lease_documents::{HELD, LeaseDocument, OVER, WAITING, millis};

use super::{
    lease::{Lease, LeaseEndReason, LeaseSnapshot, LeaseStageSnapshot},
    lease_table::LeaseTable,
};

/// The reader of a document.
#[derive(Clone, Copy)]
pub(crate) enum LeaseDocumentAudience<'t> {
    Client(Option<&'t TicketIssuer>),
    /// The document without the secret.
    Public,
}

/// The document of a lease, as `reader` may see it.
pub(crate) fn lease_document(
    lease: &Lease,
    leases: &LeaseTable,
    reader: LeaseDocumentAudience<'_>,
) -> LeaseDocument {
    let snapshot = match reader {
        LeaseDocumentAudience::Client(_) => lease.snapshot_and_promise(),
        LeaseDocumentAudience::Public => lease.snapshot(),
    };
    snapshot_document(lease, snapshot, leases, reader)
}

/// The document of a lease by a snapshot that was taken before. For a client the snapshot has to be a promised
/// one.
pub(crate) fn snapshot_document(
    lease: &Lease,
    snapshot: LeaseSnapshot,
    leases: &LeaseTable,
    reader: LeaseDocumentAudience<'_>,
) -> LeaseDocument {
    let LeaseSnapshot { stage, ttl, expires_in, revocation, revision, age } = snapshot;
    let mut document = LeaseDocument {
        lease: None,
        reference: lease.id.reference().to_string(),
        gateway: leases.context.gateway.to_string(),
        state: String::new(),
        why: None,
        revision,
        principal: lease.principal.to_string(),
        keys: lease.keys.iter().map(|key| key.as_str().to_owned()).collect(),
        mode: lease.mode,
        note: lease.note.as_deref().map(str::to_owned),
        permit: None,
        token: None,
        number: None,
        ticket: None,
        age_ms: millis(age),
        ttl_ms: millis(ttl),
        expires_in_ms: millis(expires_in),
        held_for_ms: None,
        ahead: None,
        expected_wait_ms: None,
        revocation: revocation.as_deref().map(str::to_owned),
    };
    match stage {
        LeaseStageSnapshot::Waiting { ahead } => {
            document.state = WAITING.into();
            document.ahead = Some(ahead);
            document.expected_wait_ms = leases.expected_wait(ahead).map(millis);
        }
        LeaseStageSnapshot::Held { lock, held_for, .. } => {
            let token = lock.token();
            document.state = HELD.into();
            (document.token, document.number) = (Some(token), Some(token.number()));
            document.permit = lock.permit().map(PermitIndex::number);
            // The time counts from the client's own request, so no other reader gets it.
            document.held_for_ms =
                matches!(reader, LeaseDocumentAudience::Client(_)).then(|| millis(held_for));
            if let LeaseDocumentAudience::Client(Some(tickets)) = reader {
                let ticket =
                    tickets.ticket(&lease.keys_with_permit(&lock), token, lease.mode, lock.session_id());
                document.ticket = ticket.and_then(|ticket| ticket.to_str().ok().map(str::to_owned));
            }
        }
        LeaseStageSnapshot::Over { why, .. } => {
            document.state = OVER.into();
            document.why = Some(end_reason_code(&why));
        }
    }
    if matches!(reader, LeaseDocumentAudience::Client(_)) {
        document.lease = Some(lease.id.to_secret_text());
    }
    document
}

/// The code of the reason for which a lease is over, for programs.
pub fn end_reason_code(why: &LeaseEndReason) -> String {
    match why {
        LeaseEndReason::Refused(refusal) => refusal.reason.word().to_owned(),
        why => why.as_str().to_owned(),
    }
}
