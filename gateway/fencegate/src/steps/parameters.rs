//! The values of a request that a key template, or the condition of a route, may use.

use fencegate_policies::{
    key::{Content, Field, Sent, Values, json},
    path::Bound,
    plan::{Fence, are_alike},
};
use hyper::{
    HeaderMap, Method,
    header::{COOKIE, HeaderValue},
};

use crate::refusal::Refusal;

/// The values of a request that a key template, or the condition of a route, may use.
pub struct Parameters<'a> {
    /// The path variables of the route, once the route is known.
    pub bound: Option<Bound<'a>>,
    pub query: Option<&'a str>,
    pub headers: &'a HeaderMap,
    pub host: &'a str,
    /// The body, if it was read.
    pub body: Option<&'a json::Body>,
}

impl Values for Parameters<'_> {
    fn path(&self, name: &str) -> Option<&str> {
        self.bound.as_ref()?.get(name)
    }

    fn query(&self) -> Option<&str> {
        self.query
    }

    fn header<'a>(&'a self, name: &str) -> Field<'a> {
        field(self.headers, name)
    }

    fn host(&self) -> Option<&str> {
        Some(self.host)
    }

    fn body(&self) -> Option<&json::Body> {
        self.body
    }
}

/// Refuses a request from which the service may read another value than the one in its key.
///
/// `content`: the body, where it is here in full.
pub fn compare_sources(
    fence: &Fence,
    method: &Method,
    values: &Parameters<'_>,
    content: Option<Content<'_>>,
) -> Result<(), Refusal> {
    // A path alone has nothing beside it. Most requests are so, and nothing is allocated for them.
    let has_body = content.is_some_and(|content| !content.bytes.is_empty());
    if !has_body && values.query.unwrap_or_default().is_empty() && !values.headers.contains_key(COOKIE) {
        return Ok(());
    }
    let path: Vec<_> = values.bound.iter().flat_map(Bound::variables).collect();
    let cookies: Vec<_> = values.headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let sent = Sent { path: &path, cookies: &cookies, content };
    fence.compare_sources(method.as_str(), values, &sent).map_err(|bad| Refusal::of_key(&bad))
}

/// A field as whoever reads it behind us may see it. `name` is lower case, as all names in a `HeaderMap` are.
pub fn field<'a>(headers: &'a HeaderMap, name: &str) -> Field<'a> {
    let mut field = Field::Absent;
    for (other, value) in headers.iter().filter(|(other, _)| are_alike(other.as_str(), name)) {
        // `X_Account` is `X-Account` to CGI, WSGI and Rack; to lighttpd `X.Account` is, too. To nginx, Node and Go it
        // is another field or none. So also a single field in another spelling is refused.
        if other.as_str() != name {
            return Field::Respelled;
        }
        field = if field == Field::Absent { Field::One(value.as_bytes()) } else { Field::Several };
    }
    field
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_field_is_there_where_it_is_there_once_under_its_own_name() {
        for (lines, found) in [
            (&["X-Accounts"][..], Field::Absent),
            (&["X-Account"], Field::One(b"1")),
            (&["x-account", "x-accounts"], Field::One(b"1")),
            (&["X-Account", "X-ACCOUNT"], Field::Several),
            (&["X_Account"], Field::Respelled),
            (&["X.Account"], Field::Respelled),
            (&["x~account"], Field::Respelled),
            (&["X-Account", "X_Account"], Field::Respelled),
            (&["X_Account", "X-Account"], Field::Respelled),
            (&["X-Account", "X-Account", "X.Account"], Field::Respelled),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                let name = HeaderName::from_bytes(line.as_bytes()).expect("a field name");
                headers.append(name, HeaderValue::from_static("1"));
            }
            assert_eq!(field(&headers, "x-account"), found, "{lines:?}");
        }
    }
}
