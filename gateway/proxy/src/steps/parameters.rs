//! The values of a request that a key template, or the condition of a route, may use.

use fencegate_policies::{
    client_name::ClientName,
    key::{
        BodyValues, ClaimValues, CompleteBody, ContentDeclaration, HeaderLookup, RequestParameterSources,
        RequestValues, RespelledHeaderError, RouteConditionBody,
    },
    path::PathParams,
    plan::{FenceRule, same_field},
};
use fencegate_refusal::Refusal;
use hyper::{
    HeaderMap, Method,
    header::{COOKIE, HeaderValue},
};

use crate::request_context::VerifiedClientIdentity;

/// The values of a request that a key template, or the condition of a route, may use.
pub(crate) struct RequestParameters<'a> {
    /// The path variables of the route, once the route is known.
    pub bound: Option<PathParams<'a>>,
    pub query: Option<&'a str>,
    pub headers: &'a HeaderMap,
    pub host: &'a str,
    /// The verified identity of the client.
    pub identity: Option<&'a VerifiedClientIdentity>,
    /// The body, if it was read for keys.
    pub body: Option<&'a BodyValues>,
    /// The body, if it was read for the conditions of routes.
    pub condition_body: Option<&'a RouteConditionBody>,
}

impl RequestValues for RequestParameters<'_> {
    fn path(&self, name: &str) -> Option<&str> {
        self.bound.as_ref()?.get(name)
    }

    fn query(&self) -> Option<&str> {
        self.query
    }

    fn header<'a>(&'a self, name: &str) -> HeaderLookup<'a> {
        header_field(self.headers, name)
    }

    fn header_lines<'a>(&'a self, name: &str) -> Result<Vec<&'a [u8]>, RespelledHeaderError> {
        header_lines(self.headers, name)
    }

    fn request_host(&self) -> Option<&str> {
        Some(self.host)
    }

    fn client_name(&self) -> Option<&ClientName> {
        self.identity?.client_name.as_ref()
    }

    fn claims(&self) -> Option<&ClaimValues> {
        self.identity?.claims()
    }

    fn body(&self) -> Option<&BodyValues> {
        self.body
    }

    fn condition_body(&self) -> Option<&RouteConditionBody> {
        self.condition_body
    }
}

/// Returns the fields in which a request describes its body.
pub(crate) fn content_headers(headers: &HeaderMap) -> ContentDeclaration<'_> {
    ContentDeclaration {
        kind: header_field(headers, "content-type"),
        coding: header_field(headers, "content-encoding"),
    }
}

/// Returns the lines of the field `Cookie`.
pub(crate) fn cookie_lines(headers: &HeaderMap) -> Vec<&[u8]> {
    headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect()
}

/// Refuses a request from which the service may read another value than the one in its key.
///
/// `content` is the body, if it was buffered in full.
pub(crate) fn refuse_conflicting_parameters(
    fence: &FenceRule,
    method: &Method,
    values: &RequestParameters<'_>,
    content: Option<CompleteBody<'_>>,
) -> Result<(), Refusal> {
    // Most requests have only a path, in which a value stands once. They pass without an allocation.
    let has_body = content.is_some_and(|content| !content.bytes.is_empty());
    if !has_body && values.query.unwrap_or_default().is_empty() && !values.headers.contains_key(COOKIE) {
        return Ok(());
    }
    let path: Vec<_> = values.bound.iter().flat_map(PathParams::variables).collect();
    let cookies = cookie_lines(values.headers);
    let sent = RequestParameterSources { path: &path, cookies: &cookies, content };
    fence.compare_sources(method.as_str(), values, &sent).map_err(|bad| Refusal::from_key_error(&bad))
}

/// Looks up a field as a server behind this gateway may read it. `name` is lower case, as all names in a `HeaderMap`
/// are.
pub(crate) fn header_field<'a>(headers: &'a HeaderMap, name: &str) -> HeaderLookup<'a> {
    let mut field = HeaderLookup::Absent;
    for (other, value) in headers.iter().filter(|(other, _)| same_field(other.as_str(), name)) {
        // CGI, WSGI and Rack take `X_Account` for `X-Account`, and lighttpd takes `X.Account` for it. nginx, Node and
        // Go take each for another field or none. So a field in another spelling is refused, even if it is the only
        // one.
        if other.as_str() != name {
            return HeaderLookup::Respelled;
        }
        field = if field == HeaderLookup::Absent {
            HeaderLookup::One(value.as_bytes())
        } else {
            HeaderLookup::Several
        };
    }
    field
}

/// All lines of a field, in their order. `name` is lower case, as all names in a `HeaderMap` are.
fn header_lines<'a>(headers: &'a HeaderMap, name: &str) -> Result<Vec<&'a [u8]>, RespelledHeaderError> {
    let lines = headers.iter().filter(|(other, _)| same_field(other.as_str(), name));
    lines
        .map(
            |(other, value)| {
                if other.as_str() == name { Ok(value.as_bytes()) } else { Err(RespelledHeaderError) }
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    /// A field has a value only if it is there once and in the spelling of its name.
    #[test]
    fn field_must_be_single_and_exact() {
        for (lines, found) in [
            (&["X-Accounts"][..], HeaderLookup::Absent),
            (&["X-Account"], HeaderLookup::One(b"1")),
            (&["x-account", "x-accounts"], HeaderLookup::One(b"1")),
            (&["X-Account", "X-ACCOUNT"], HeaderLookup::Several),
            (&["X_Account"], HeaderLookup::Respelled),
            (&["X.Account"], HeaderLookup::Respelled),
            (&["x~account"], HeaderLookup::Respelled),
            (&["X-Account", "X_Account"], HeaderLookup::Respelled),
            (&["X_Account", "X-Account"], HeaderLookup::Respelled),
            (&["X-Account", "X-Account", "X.Account"], HeaderLookup::Respelled),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                let name = HeaderName::from_bytes(line.as_bytes()).expect("a field name");
                headers.append(name, HeaderValue::from_static("1"));
            }
            assert_eq!(header_field(&headers, "x-account"), found, "{lines:?}");
            let several = header_lines(&headers, "x-account");
            assert_eq!(several.is_err(), found == HeaderLookup::Respelled, "{lines:?}");
        }
    }

    /// A field that is a list has all of its lines, in their order.
    #[test]
    fn list_field_has_all_lines() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-skus", "a, b"), ("x-other", "z"), ("x-skus", "c")] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        assert_eq!(header_lines(&headers, "x-skus"), Ok(vec![&b"a, b"[..], b"c"]));
        assert_eq!(header_lines(&headers, "x-none"), Ok(Vec::new()));
    }
}
