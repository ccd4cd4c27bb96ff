//! Reads the ticket and the token that a service shows when it calls back while it works on a dispatch. Whether that
//! dispatch is still in flight is checked later, where its lock is held.

use std::rc::Rc;

use fencegate_guard_client::{
    callback::{CallbackOrigin, CallbackTicket},
    ticket_issuer::TicketIssuer,
};
use fencegate_leases::{PresentedLease, api::context};
use fencegate_policies::key::ResourceKey;
use fencegate_protocol::headers::{FENCING_LEASE, FENCING_TOKEN};
use fencegate_ticket::TicketError;
use hyper::HeaderMap;
use tracing::debug;

use super::{extract_claim::parse_headers, strip_headers::SanitizedRequest};

/// Reads the lease that a request names. Its owner and its keys are checked where the keys of the request are known.
pub fn record_presented_lease(request: &SanitizedRequest) {
    if let Some(line) = request.presented.get(FENCING_LEASE) {
        let shown = match context::lease_id(&request.presented) {
            Ok(id) => PresentedLease::Valid(Rc::new(id), line.clone()),
            Err(_) => PresentedLease::Malformed,
        };
        request.request.notes.lease.get_or_init(|| shown);
    }
}

/// `tickets`: our tickets, where some route may be called back. This is part of the step that detects loops, because
/// that step needs the result.
pub fn record_presented_ticket(tickets: Option<&TicketIssuer>, request: &SanitizedRequest) {
    if let Some(shown) = tickets.and_then(|tickets| verify_callback_ticket(&request.presented, tickets)) {
        request.request.notes.shown.get_or_init(|| shown);
    }
}

/// `None` where the request shows no ticket, or no ticket that a gateway of ours has signed. A forger gets no report
/// of the mistake, and is served as a request without a ticket.
fn verify_callback_ticket(presented: &HeaderMap, tickets: &TicketIssuer) -> Option<CallbackTicket> {
    let ticket = match parse_headers::parse_ticket(presented) {
        Ok(ticket) => ticket,
        Err(TicketError::Missing) => return None,
        Err(bad) => return callback_ticket_for_error(&bad),
    };
    let verified = match tickets.verify(ticket.as_bytes()) {
        Ok(verified) => verified,
        Err(TicketError::Expired { .. }) => return Some(CallbackTicket::Expired("its ticket has expired")),
        Err(bad) => return callback_ticket_for_error(&bad),
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
    Some(CallbackTicket::Valid(Rc::new(CallbackOrigin {
        keys: keys.ok()?.into(),
        token,
        origin: verified.claims.origin.clone(),
        ticket: ticket.clone(),
        token_header: written.clone(),
    })))
}

fn callback_ticket_for_error(bad: &TicketError) -> Option<CallbackTicket> {
    debug!(%bad, "call_back.not_believed");
    None
}
