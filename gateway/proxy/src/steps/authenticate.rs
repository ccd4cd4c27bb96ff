//! Verifies the bearer token of a request whose route reads a claim, before its body is read and before its lock is
//! requested. Later steps do not change the identity of the client.

use std::{rc::Rc, sync::Arc};

use fencegate_config::access_tokens::{AccessTokenAuthenticator, AuthenticateError, JwksFetchWait};
use fencegate_http::body::{Body, Reply};
use fencegate_policies::{
    key::HeaderLookup,
    plan::{AccessRule, Enforcement, LargeBodyPolicy, Route},
};
use fencegate_refusal::{Refusal, RefusalReason};
use fencegate_ticket::AccessToken;
use hyper::{HeaderMap, Request, header::AUTHORIZATION};

use crate::{
    handler::Handler,
    request_context::VerifiedClientIdentity,
    steps::{bufferable::BufferableRequest, parameters::header_field, route::RoutedRequest},
};

/// A request whose client is verified, as far as its route requires it.
pub(crate) struct AuthenticatedRequest {
    pub routed: RoutedRequest,
    /// `None` if nothing about the client was verified.
    pub identity: Option<Rc<VerifiedClientIdentity>>,
}

impl BufferableRequest for AuthenticatedRequest {
    fn http(&mut self) -> &mut Request<Body> {
        self.routed.http()
    }

    fn needs_full_body(&self) -> bool {
        self.routed.needs_full_body()
    }

    fn large_body_policy(&self) -> LargeBodyPolicy {
        self.routed.large_body_policy()
    }
}

/// The source of the claims of a bearer token.
#[derive(Debug, Clone)]
pub enum AccessTokenSource {
    /// The token that the request carries, verified with the keys of the plan's issuers. `None` where the plan has no
    /// issuers.
    Verified(Option<Arc<AccessTokenAuthenticator>>),
    /// A sample token that every request is taken to have, for `fencegate explain`.
    Sample(Arc<AccessToken>),
}

/// Adds the verified identity of the client, or refuses the request.
///
/// # Cancellation
/// The request may be dropped here: it holds no lock yet.
pub(crate) async fn authenticate<S: Handler<AuthenticatedRequest>>(
    tokens: &AccessTokenSource,
    routed: RoutedRequest,
    next: &S,
) -> Result<Reply, Refusal> {
    let client_name = routed.source.client_name().cloned();
    let mut identity = VerifiedClientIdentity { client_name, token: None };
    if let Some(route) = routed.route.map(|id| routed.plan.routes.get(id)) {
        // Most routes read no token. The large future that may wait for an issuer's keys is made only for those that
        // do.
        if route.reads_token {
            identity.token = Box::pin(route_token(tokens, route, &routed)).await?;
        }
        check_access(route, &identity)?;
    }
    let is_known = identity.client_name.is_some() || identity.token.is_some();
    let identity = is_known.then(|| Rc::new(identity));
    next.handle(AuthenticatedRequest { routed, identity }).await
}

/// Verifies the token of a request whose route reads one; `None` if the request has none.
async fn route_token(
    tokens: &AccessTokenSource,
    route: &Route,
    routed: &RoutedRequest,
) -> Result<Option<Arc<AccessToken>>, Refusal> {
    let observes = route.fence.as_ref().is_some_and(|fence| fence.enforce == Enforcement::Observe);
    // On a route that observes, a request with a bad token passes as one without a token, unless the route has `allow`
    // rules.
    let passes = observes && route.allow.is_empty();
    // There the result for the token decides nothing, so keys that have to be fetched are not waited for.
    let wait = if passes { JwksFetchWait::Never } else { JwksFetchWait::UntilFetched };
    match verify_token(tokens, routed.http.headers(), wait).await {
        Err(refusal) if passes => {
            routed.context.update_lock(|facts| facts.observed = Some(refusal.reason));
            Ok(None)
        }
        verified => verified,
    }
}

/// # Errors
/// Returns an error if no rule of the route allows the client.
fn check_access(route: &Route, identity: &VerifiedClientIdentity) -> Result<(), Refusal> {
    let name = identity.client_name.as_ref();
    let allows = |rule: &AccessRule| rule.allows(name, identity.claims());
    if route.allow.is_empty() || route.allow.iter().any(allows) {
        return Ok(());
    }
    let reason = if identity.token.is_none() && route.allow.iter().any(|rule| !rule.claims.is_empty()) {
        RefusalReason::BearerMissing
    } else if name.is_none() && route.allow.iter().all(|rule| rule.client_name.is_some()) {
        RefusalReason::CertificateRequired
    } else {
        RefusalReason::AccessDenied
    };
    Err(Refusal::new(reason, "no rule of the route allows this client"))
}

/// Verifies the token of a request; `None` if the request has none.
async fn verify_token(
    tokens: &AccessTokenSource,
    headers: &HeaderMap,
    wait: JwksFetchWait,
) -> Result<Option<Arc<AccessToken>>, Refusal> {
    let tokens = match tokens {
        AccessTokenSource::Sample(token) => return Ok(Some(token.clone())),
        AccessTokenSource::Verified(tokens) => tokens,
    };
    let (Some(token), Some(tokens)) = (presented_token(headers)?, tokens) else { return Ok(None) };
    tokens.authenticate(token, wait).await.map(Some).map_err(|error| {
        let reason = match error {
            AuthenticateError::Token(_) => RefusalReason::BearerInvalid,
            AuthenticateError::KeysUnavailable | AuthenticateError::TooManyWaiting => RefusalReason::JwksAway,
            AuthenticateError::KeysTooOld => RefusalReason::JwksStale,
        };
        Refusal::new(reason, error.to_string())
    })
}

/// The token behind `Bearer` in the one field `Authorization` (RFC 6750, 2.1). Tokens in a form or in the query, which
/// the RFC allows as well, are not read. A field with another scheme counts as no token.
fn presented_token(headers: &HeaderMap) -> Result<Option<&[u8]>, Refusal> {
    let malformed = |detail| Refusal::new(RefusalReason::BearerMalformed, detail);
    let line = match header_field(headers, AUTHORIZATION.as_str()) {
        HeaderLookup::Absent => return Ok(None),
        HeaderLookup::One(line) => line,
        HeaderLookup::Several => return Err(malformed("the field Authorization is there more than once")),
        HeaderLookup::Respelled => {
            let detail =
                "the field Authorization is there in another spelling, which some servers take for the same";
            return Err(malformed(detail));
        }
    };
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let (scheme, token) = line.split_at(end);
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return Ok(None);
    }
    // One space or more stands before the token (RFC 9110, 11.4).
    match token.trim_ascii_start() {
        [] => Err(malformed("there is no token after Bearer")),
        token => Ok(Some(token)),
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn presented(fields: &[(&'static str, &'static str)]) -> Result<Option<Vec<u8>>, RefusalReason> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        presented_token(&headers).map(|token| token.map(<[u8]>::to_vec)).map_err(|refusal| refusal.reason)
    }

    /// The token is the text behind `Bearer`, in any case of letters, in the one `Authorization` field.
    #[test]
    fn token_follows_scheme() {
        for line in ["Bearer a.b.c", "bearer a.b.c", "BEARER   a.b.c"] {
            assert_eq!(presented(&[("authorization", line)]), Ok(Some(b"a.b.c".to_vec())), "{line}");
        }
        for fields in [
            &[][..],
            &[("authorization", "Basic YTpi")],
            &[("authorization", "")],
            &[("authorization", "Bearera.b.c")],
            &[("x-authorization", "Bearer a.b.c")],
            &[("proxy-authorization", "Bearer a.b.c")],
            &[("cookie", "access_token=a.b.c")],
        ] {
            assert_eq!(presented(fields), Ok(None), "{fields:?}");
        }
    }

    /// Two `Authorization` fields are malformed, with any schemes, and so is `Bearer` without a token.
    #[test]
    fn ambiguous_token_is_malformed() {
        let bearer = ("authorization", "Bearer a.b.c");
        for fields in [
            &[bearer, bearer][..],
            &[bearer, ("authorization", "Basic YTpi")],
            &[("authorization", "Basic YTpi"), bearer],
            &[("authorization", "Bearer")],
            &[("authorization", "Bearer ")],
        ] {
            assert_eq!(presented(fields), Err(RefusalReason::BearerMalformed), "{fields:?}");
        }
    }
}
