//! The dispatch in which a request was called, as the calling service shows it.

use std::rc::Rc;

use fencegate_guard::ticket::Origin;
use fencegate_policies::{key::ResourceKey, token::Token};
use hyper::header::HeaderValue;

/// A ticket that a request shows and that a gateway of the installation has signed.
pub enum CallerTicket {
    Valid(Rc<CallbackOrigin>),
    /// The ticket no longer counts, and why.
    Expired(&'static str),
}

/// The dispatch, as the gateway that sent it has described it. Only that gateway knows whether it is still in flight.
pub struct CallbackOrigin {
    /// All keys of its tenure, sorted.
    pub keys: Rc<[ResourceKey]>,
    pub token: Token,
    /// The process that holds the tenure. Older gateways do not send it.
    pub origin: Option<Origin>,
    /// The ticket and the token as they came, for the gateway to which the request is forwarded.
    pub ticket: HeaderValue,
    pub token_header: HeaderValue,
}
