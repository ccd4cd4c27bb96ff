//! A tenure that one request holds, and the fields with which its dispatches are stamped.

use std::{rc::Rc, sync::Arc};

use fencegate_http::share::Share;
use fencegate_lock::tenures::tenure::{Dispatch, Tenure};
use fencegate_policies::{
    key::ResourceKey,
    not_after::NotAfter,
    operation::Operation,
    plan::{Mode, Nested},
    token::Token,
};
use hyper::{HeaderMap, header::HeaderValue};

use super::traces::Traced;
use crate::{
    dispatch_span::Span,
    edition::Running,
    headers::{FENCING_NESTED, FENCING_OPERATION, FENCING_PARENT, FENCING_TICKET},
    metrics::Holding,
    stays::Stay,
    steps::permitted::Right,
    ticketing::Ticketing,
};

/// A tenure that one request holds. Shared by everything that still needs it.
pub struct HeldTenure {
    pub tenure: Tenure,
    pub keys: Rc<[ResourceKey]>,
    pub mode: Mode,
    pub counted: Holding,
    /// Signs the tickets for a guard, and for a service that may call back.
    pub tickets: Option<Arc<Ticketing>>,
    pub operation: Option<Rc<Operation>>,
    /// Tells a guard whether to pass the ticket on to the service.
    pub nested: Nested,
    /// Tells a guard in which dispatch the request was called.
    pub called_from: Option<Token>,
    pub running: Rc<Running>,
    /// The request's trace has these keys, so that a call back can be recognised.
    pub(super) _traced: Option<Rc<Traced>>,
    /// The request is listed at its keys as long as this lives.
    pub(super) _stay: Option<Rc<Stay>>,
    /// The place in its client's share, where shares are limited.
    pub share: Option<Rc<Share>>,
}

impl Right for Rc<HeldTenure> {
    fn dispatch(&self) -> Option<Dispatch> {
        self.tenure.dispatch()
    }

    fn keys(&self) -> &[ResourceKey] {
        &self.keys
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn stamp(&self, token: Token, headers: &mut HeaderMap, span: Span) -> NotAfter {
        let mut not_after = span.not_after;
        if let Some(tickets) = &self.tickets {
            let wanted = span.is_signed.then_some(span);
            let signed = tickets.ticket_until(&self.keys, token, self.mode, self.tenure.session(), wanted);
            if let Some((ticket, bound)) = signed {
                headers.insert(FENCING_TICKET, ticket);
                not_after = bound.map_or(not_after, |bound| not_after.no_later_than(bound));
            }
        }
        if self.nested == Nested::Allow {
            headers.insert(FENCING_NESTED, HeaderValue::from_static("allow"));
        }
        match self.called_from {
            Some(token) => {
                let value = HeaderValue::from_bytes(&token.text()).expect("digits and dashes");
                headers.insert(FENCING_PARENT, value);
            }
            None => drop(headers.remove(FENCING_PARENT)),
        }
        if let Some(operation) = &self.operation {
            let value = HeaderValue::from_str(&operation.to_string()).expect("hex digits and numbers");
            headers.insert(FENCING_OPERATION, value);
        }
        not_after
    }
}
