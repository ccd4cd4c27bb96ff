//! Derives the keys of a fenced request from the path that is forwarded and the body that is here in full. Below it
//! nothing changes them.

use std::rc::Rc;

use fencegate_http::body::{Body, Reply};
use fencegate_policies::{
    key::{BadKey, Field, ResourceKey, Said, Values, json},
    operation::Operation,
    path::Bound,
    plan::{Enforce, Fence, Route, are_alike},
};
use hyper::{HeaderMap, Request};

use super::name::{self, Wanted};
use crate::{
    refusal::{Reason, Refusal},
    stage::{Fenced, Keyed, Loaded, Routed},
    step::Serve,
};

pub async fn key<S: Serve<Keyed>>(_: &(), request: Loaded<Routed>, next: &S) -> Result<Reply, Refusal> {
    let Loaded(routed) = request;
    let fenced = match fenced(&routed) {
        // Where one only looks on, a request without a key goes out without a token.
        Err(refusal) if routed.fence().is_some_and(|fence| fence.enforce == Enforce::Observe) => {
            routed.notes.observed.set(Some(refusal.reason));
            None
        }
        fenced => fenced?,
    };
    if let Some(fenced) = &fenced {
        routed.notes.keys.get_or_init(|| fenced.keys.clone());
    }
    let observes = routed.fence().is_some_and(|fence| fence.enforce == Enforce::Observe);
    let Routed { http, notes, plan, upstream, running, .. } = routed;
    let reply = next.serve(Keyed { http, notes, plan, upstream, fenced }).await?;
    match running.filter(|_| observes) {
        // It may have passed without a lock. Whoever comes when its route no longer only observes waits for its end.
        Some(running) => Ok(reply.map(|body| body.holding(running))),
        None => Ok(reply),
    }
}

fn fenced(routed: &Routed) -> Result<Option<Fenced>, Refusal> {
    let Some(id) = routed.route else { return Ok(None) };
    let route = routed.plan.routes.get(id);
    let Some(fence) = &route.fence else { return Ok(None) };
    let (keys, operation) = named(routed, route, fence)?;
    let mode = fence.mode.mode(routed.http.method().as_str());
    let running = routed.running.clone().expect("the route fences");
    Ok(Some(Fenced { route: id, keys, mode, operation: operation.map(Rc::new), running }))
}

fn named(
    routed: &Routed,
    route: &Route,
    fence: &Fence,
) -> Result<(Rc<[ResourceKey]>, Option<Operation>), Refusal> {
    let body = fence.reads_body().then(|| json(&routed.http, fence)).transpose()?;
    let values = Parameters {
        bound: Some(route.bind(&routed.path)),
        query: routed.http.uri().query(),
        headers: routed.http.headers(),
        host: routed.host.name(),
        body: body.as_ref(),
    };
    let keys = fence.expand_all(&values).map_err(|bad| {
        let reason = match bad {
            BadKey::Missing { .. } => Reason::KeyMissing,
            BadKey::Invalid { .. } | BadKey::TooLong => Reason::KeyInvalid,
        };
        Refusal::new(reason, bad.to_string())
    })?;
    Ok((keys.into(), operation(routed, fence, &values)?))
}

/// What the client calls the operation that this request is, on routes where one happens at most once.
fn operation(routed: &Routed, fence: &Fence, values: &Parameters<'_>) -> Result<Option<Operation>, Refusal> {
    let Some(once) = fence.once(routed.http.method().as_str()) else { return Ok(None) };
    let named = once.expand(values).map_err(|bad| {
        let reason = match bad {
            BadKey::Missing { .. } => Reason::IdempotencyKeyRequired,
            BadKey::Invalid { .. } | BadKey::TooLong => Reason::KeyInvalid,
        };
        Refusal::new(reason, bad.to_string())
    })?;
    let wanted = Wanted {
        method: routed.http.method().as_str(),
        target: routed.http.uri().path_and_query().map_or("/", |target| target.as_str()),
        body: routed.http.body().bytes().expect("the body of a fenced request is here in full"),
    };
    let upstream = &routed.plan.upstream(routed.upstream).name;
    Ok(named.map(|named| {
        let operation = name::operation(upstream, once, &named, wanted);
        routed.notes.named.get_or_init(|| named);
        operation
    }))
}

fn json(http: &Request<Body>, fence: &Fence) -> Result<json::Body, Refusal> {
    let bytes = http.body().bytes().expect("the body of a fenced request is here in full");
    let headers = http.headers();
    let said = Said { kind: field(headers, "content-type"), coding: field(headers, "content-encoding") };
    fence.body(&said, bytes).map_err(|bad| Refusal::new(Reason::KeyInvalid, bad.to_string()))
}

/// A field as whoever reads it behind us may see it. `name` is lower case, as all names in a `HeaderMap` are.
pub(super) fn field<'a>(headers: &'a HeaderMap, name: &str) -> Field<'a> {
    let mut field = Field::Absent;
    for (other, value) in headers.iter().filter(|(other, _)| are_alike(other.as_str(), name)) {
        // `X_Account` is `X-Account` to CGI, WSGI and Rack, as `X.Account` is to lighttpd, and another field or none to
        // nginx, Node and Go. So one that is there alone is not the field either.
        if other.as_str() != name {
            return Field::Respelled;
        }
        field = if field == Field::Absent { Field::One(value.as_bytes()) } else { Field::Several };
    }
    field
}

/// What a key template, or the condition of a route, may ask of a request.
pub(super) struct Parameters<'a> {
    /// By the path of its route, once that is known.
    pub bound: Option<Bound<'a>>,
    pub query: Option<&'a str>,
    pub headers: &'a HeaderMap,
    pub host: &'a str,
    /// Where it was read.
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
