//! The values that a request has for a key template.

use super::json::BodyValues;

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

    /// The canonical host without its port.
    fn host(&self) -> Option<&str> {
        None
    }

    /// The body, read for the fence of the key; `None` where no key of the fence takes a value from the body.
    fn body(&self) -> Option<&BodyValues> {
        None
    }
}

/// A request without values, for keys without variables.
impl RequestValues for () {}

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
