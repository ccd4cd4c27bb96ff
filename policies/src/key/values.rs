//! The values that a request has for a key template.

use super::{body::BodyValues, claims::ClaimValues, condition_body::ConditionBody};
use crate::client_name::ClientName;

/// Has the values of a request for a key template. A method that is not implemented has no value.
pub trait RequestValues {
    /// The decoded value of a variable of the route's path template.
    fn path(&self, _: &str) -> Option<&str> {
        None
    }

    /// The query as it came, without the question mark.
    fn query(&self) -> Option<&str> {
        None
    }

    /// The name is lower case.
    fn header<'a>(&'a self, _: &str) -> HeaderLookup<'a> {
        HeaderLookup::Absent
    }

    /// The values of all lines of a field, in their order. The name is lower case.
    ///
    /// # Errors
    /// The field stands under another name that only some servers take for it.
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

    /// The name in the client's certificate; `None` where the client has shown none, or its certificate has no name that counts.
    fn client_name(&self) -> Option<&ClientName> {
        None
    }

    /// The claims of the bearer token that was verified; `None` where the request has no such token.
    fn claims(&self) -> Option<&ClaimValues> {
        None
    }

    /// The body, read for the fence of the key; `None` where no key of the fence takes a value from the body.
    fn body(&self) -> Option<&BodyValues> {
        None
    }

    /// The body, read for the conditions of routes; `None` before it was read for them.
    fn condition_body(&self) -> Option<&ConditionBody> {
        None
    }
}

/// A request without values, for keys without variables.
impl RequestValues for () {}

/// A field stands under another name that only some servers take for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request has a header field in another spelling")]
pub struct RespelledHeaderError;

/// One header field name in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderLookup<'a> {
    Absent,
    One(&'a [u8]),
    /// The field stands on several lines. The line that the upstream uses is not known.
    Several,
    /// The field stands under another name, alone or beside its own name, that only some servers take for it.
    Respelled,
}
