//! The dispatch that a request was called from, as the service shows it that works for both.

use std::rc::Rc;

use fencegate_guard::ticket::Origin;
use fencegate_policies::{key::ResourceKey, token::Token};
use hyper::header::HeaderValue;

/// What comes of the ticket that a request shows, where a gateway of the installation has signed it.
pub enum ShownTicket {
    Good(Rc<CallingDispatch>),
    /// It says nothing any more; why.
    Spent(&'static str),
}

/// By the word of the gateway that has made the dispatch. Whether it is in flight now, only that one knows.
pub struct CallingDispatch {
    /// All keys of its tenure, sorted.
    pub keys: Rc<[ResourceKey]>,
    pub token: Token,
    /// Where its tenure is held. Older gateways do not say it.
    pub origin: Option<Origin>,
    /// Ticket and token as they came, for the gateway that the request is sent on to.
    pub ticket: HeaderValue,
    pub written: HeaderValue,
}
