//! The values that a request has for a key template.

use super::{body::BodyValues, claims::ClaimValues, condition_body::RouteConditionBody};
use crate::client_name::ClientName;

/// Provides the values of a request for a key template. By default each method provides no value.
pub trait RequestValues {
    /// The decoded value of a variable of the route's path template.
    fn path(&self, _: &str) -> Option<&str> {
        None
    }

    /// The query as the client has sent it, without the question mark.
    fn query(&self) -> Option<&str> {
        None
    }

    /// The field with this name, in lower case.
    fn header<'a>(&'a self, _: &str) -> HeaderLookup<'a> {
        HeaderLookup::Absent
    }

    /// The values of all lines of a field, in their order. `name`: in lower case.
    ///
    /// # Errors
    /// Returns an error if the request has the field under another name that only some servers take for it.
    fn header_lines<'a>(&'a self, name: &str) -> Result<Vec<&'a [u8]>, RespelledHeaderError> {
        match self.header(name) {
            HeaderLookup::Absent => Ok(Vec::new()),
            HeaderLookup::One(value) => Ok(vec![value]),
            HeaderLookup::Several | HeaderLookup::Respelled => Err(RespelledHeaderError),
        }
    }

    /// The canonical host without its port.
    fn request_host(&self) -> Option<&str> {
        None
    }

    /// The name in the client's certificate; `None` if the client has shown none, or if its certificate has no name of
    /// the configured kind.
    fn client_name(&self) -> Option<&ClientName> {
        None
    }

    /// The claims of the verified bearer token; `None` if the request has no such token.
    fn claims(&self) -> Option<&ClaimValues> {
        None
    }

    /// The body as it was read for the fence; `None` if no key of the fence takes a value from the body.
    fn body(&self) -> Option<&BodyValues> {
        None
    }

    /// The body as it was read for the conditions of routes; `None` before it was read.
    fn condition_body(&self) -> Option<&RouteConditionBody> {
        None
    }
}

/// A request without values, for keys without variables.
impl RequestValues for () {}

/// The request has a field under another name that only some servers take for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request has a header field in another spelling")]
pub struct RespelledHeaderError;

/// The result of looking up a header field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderLookup<'a> {
    Absent,
    One(&'a [u8]),
    /// The field has several lines, and it is not known which of them the upstream uses.
    Several,
    /// The request has the field under another name that only some servers take for it, alone or beside the right name.
    Respelled,
}
