//! The dispatch from which a service sent a callback request, as the request presents it.

use std::rc::Rc;

use fencegate_policies::{key::ResourceKey, token::FencingToken};
use fencegate_ticket::TenureHolder;
use hyper::header::HeaderValue;

/// A ticket that a request presents and that a gateway of the installation has signed.
pub enum CallbackTicket {
    Valid(Rc<ParentDispatch>),
    /// The ticket is no longer valid, with the reason.
    Expired(&'static str),
}

/// The dispatch from which a service called back, as the gateway that sent the dispatch has described it. Only
/// that gateway can determine whether the dispatch is still in flight.
pub struct ParentDispatch {
    /// All keys of its grant, sorted.
    pub keys: Rc<[ResourceKey]>,
    pub token: FencingToken,
    /// The process that holds the grant. Older gateways do not send it.
    pub origin: Option<TenureHolder>,
    /// The ticket and the token as received, for the gateway to which the request is forwarded.
    pub ticket: HeaderValue,
    pub token_header: HeaderValue,
}
