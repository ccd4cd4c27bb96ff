//! What a request offers to a key template.

use super::json::Body;

/// What a request offers to a key template: nothing, but for what is said of it.
pub trait Values {
    /// The decoded value of a variable of the route's path template.
    fn path(&self, _: &str) -> Option<&str> {
        None
    }

    /// The query as it came, without the question mark.
    fn query(&self) -> Option<&str> {
        None
    }

    /// The name is lower case.
    fn header<'a>(&'a self, _: &str) -> Field<'a> {
        Field::Absent
    }

    /// The canonical host without its port.
    fn host(&self) -> Option<&str> {
        None
    }

    /// The body, read for the fence that the key belongs to; `None` where no key of it asks for one.
    fn body(&self) -> Option<&Body> {
        None
    }
}

/// A request that offers nothing: for keys without variables.
impl Values for () {}

/// One header field name in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field<'a> {
    Absent,
    One(&'a [u8]),
    /// On several lines. Nobody knows which of them the upstream will take.
    Several,
    /// Under a name, beside its own or alone, that some servers take for it and others do not.
    Respelled,
}
