//! Reads the ticket and the token that a service shows when it calls back while it works on a dispatch. Whether that
//! dispatch is still in flight is checked later, where its lock is held.

use std::rc::Rc;

use fencegate_guard_client::{
    callback::{CallbackTicket, ParentDispatch},
    ticket_issuer::TicketIssuer,
};
use fencegate_leases::{PresentedLease, api::context};
use fencegate_policies::key::ResourceKey;
use fencegate_protocol::headers::{FENCING_LEASE, FENCING_TOKEN};
use fencegate_ticket::TicketVerificationError;
use hyper::HeaderMap;
use tracing::debug;

use super::extract_claim::parse_headers;

/// Reads the lease that a request names. A later step, which knows the keys of the request, checks owner and keys of
/// the lease.
pub fn presented_lease(presented: &HeaderMap) -> Option<PresentedLease> {
    let line = presented.get(FENCING_LEASE)?;
    Some(match context::lease_id(presented) {
        Ok(id) => PresentedLease::Valid(Rc::new(id), line.clone()),
        Err(_) => PresentedLease::Malformed,
    })
}

/// Reads the ticket of a request. `None` where there is none, or none that a gateway of this installation has
/// signed: a forger is not told so, and is served as a request without a ticket.
///
/// `tickets` verifies tickets, where some route may be called back. The step that detects loops calls this, because
/// it needs the result.
pub fn presented_ticket(tickets: &TicketIssuer, presented: &HeaderMap) -> Option<CallbackTicket> {
    let ticket = match parse_headers::parse_ticket(presented) {
        Ok(ticket) => ticket,
        Err(TicketVerificationError::Missing) => return None,
        Err(bad) => return ignore_invalid_ticket(&bad),
    };
    let verified = match tickets.verify(ticket.as_bytes()) {
        Ok(verified) => verified,
        Err(TicketVerificationError::Expired { .. }) => {
            return Some(CallbackTicket::Expired("its ticket has expired"));
        }
        Err(bad) => return ignore_invalid_ticket(&bad),
    };
    let (Ok(Some(token)), Some(written)) =
        (parse_headers::parse_token(presented), presented.get(FENCING_TOKEN))
    else {
        return Some(CallbackTicket::Expired("its ticket came without the token of the dispatch"));
    };
    if !verified.claims.tenure.same_grant(token) {
        return Some(CallbackTicket::Expired("its ticket and its token are of two tenures"));
    }
    let keys = verified.claims.keys.iter().map(|key| ResourceKey::parse(key)).collect::<Result<Vec<_>, _>>();
    Some(CallbackTicket::Valid(Rc::new(ParentDispatch {
        keys: keys.ok()?.into(),
        token,
        origin: verified.claims.origin.clone(),
        ticket: ticket.clone(),
        token_header: written.clone(),
    })))
}

fn ignore_invalid_ticket(bad: &TicketVerificationError) -> Option<CallbackTicket> {
    debug!(%bad, "call_back.not_believed");
    None
}
