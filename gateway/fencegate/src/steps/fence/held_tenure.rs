//! A tenure in the hands of one request, and what its dispatches are stamped with.

use std::{rc::Rc, sync::Arc};

use fencegate_http::share::Share;
use fencegate_lock::tenures::tenure::{Dispatch, Tenure};
use fencegate_policies::{
    key::ResourceKey,
    operation::Operation,
    plan::{Mode, Nested},
    token::Token,
};
use hyper::{HeaderMap, header::HeaderValue};

use super::traces::Traced;
use crate::{
    edition::Running,
    headers::{FENCING_NESTED, FENCING_OPERATION, FENCING_PARENT, FENCING_TICKET},
    metrics::Holding,
    stays::Stay,
    steps::permitted::Right,
    ticketing::Ticketing,
};

/// A tenure in the hands of one request; shared by all that it is still needed for.
pub struct HeldTenure {
    pub tenure: Tenure,
    pub keys: Rc<[ResourceKey]>,
    pub mode: Mode,
    pub counted: Holding,
    /// For a guard, and for a service that may call back, where tickets are signed.
    pub tickets: Option<Arc<Ticketing>>,
    pub operation: Option<Rc<Operation>>,
    /// For a guard: whether it passes the ticket on.
    pub nested: Nested,
    /// For a guard: the dispatch that it was called from.
    pub called_from: Option<Token>,
    pub running: Rc<Running>,
    /// Where it may be called back: its trace has the keys.
    pub(super) _traced: Option<Rc<Traced>>,
    /// It is told of at its keys for as long.
    pub(super) _stay: Option<Rc<Stay>>,
    /// Of what its client may wait for and hold, where that is limited.
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

    fn stamp(&self, token: Token, headers: &mut HeaderMap) {
        let ticket = self
            .tickets
            .as_ref()
            .and_then(|tickets| tickets.ticket(&self.keys, token, self.mode, self.tenure.session()));
        if let Some(ticket) = ticket {
            headers.insert(FENCING_TICKET, ticket);
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
    }
}
