//! Verifies the bearer token of a request whose route reads a claim, before its body is read and before its lock is asked
//! for. Below, what is known of the client does not change.

use std::{rc::Rc, sync::Arc};

use fencegate_config::access_tokens::{AccessTokenAuthenticator, AuthenticateError, KeyWait};
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

/// A request whose client is known, as far as its route asks.
pub(crate) struct AuthenticatedRequest {
    pub routed: RoutedRequest,
    /// `None` where nothing was verified.
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

/// Where the claims of a request come from.
#[derive(Debug, Clone)]
pub enum TokenVerificationMode {
    /// Its own token, as the issuers of the plan have it. `None` where the plan has no issuers.
    Verified(Option<Arc<AccessTokenAuthenticator>>),
    /// A sample, for explanations: the token that the request would have.
    Sample(Arc<AccessToken>),
}

/// # Cancellation
/// Nothing is held yet.
pub(crate) async fn authenticate<S: Handler<AuthenticatedRequest>>(
    tokens: &TokenVerificationMode,
    routed: RoutedRequest,
    next: &S,
) -> Result<Reply, Refusal> {
    let client_name = routed.source.client_name().cloned();
    let mut identity = VerifiedClientIdentity { client_name, token: None };
    if let Some(route) = routed.route.map(|id| routed.plan.routes.get(id)) {
        // Most routes read no token. For them the large future that may wait for keys is not made.
        if route.reads_token {
            identity.token = Box::pin(route_token(tokens, route, &routed)).await?;
        }
        check_access(route, &identity)?;
    }
    let is_known = identity.client_name.is_some() || identity.token.is_some();
    let identity = is_known.then(|| Rc::new(identity));
    next.handle(AuthenticatedRequest { routed, identity }).await
}

/// The token of a request whose route reads one; `None` if the request has none.
async fn route_token(
    tokens: &TokenVerificationMode,
    route: &Route,
    routed: &RoutedRequest,
) -> Result<Option<Arc<AccessToken>>, Refusal> {
    let observes = route.fence.as_ref().is_some_and(|fence| fence.enforce == Enforcement::Observe);
    // It passes as a request without a token, unless a rule says who may come.
    let passes = observes && route.allow.is_empty();
    // What comes of the token decides nothing there, so it is not waited for.
    let wait = if passes { KeyWait::Never } else { KeyWait::UntilFetched };
    match verify_token(tokens, routed.http.headers(), wait).await {
        Err(refusal) if passes => {
            routed.context.update_lock(|facts| facts.observed = Some(refusal.reason));
            Ok(None)
        }
        verified => verified,
    }
}

/// # Errors
/// No rule of the route allows the client.
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

/// The token of a request; `None` if it has none.
async fn verify_token(
    tokens: &TokenVerificationMode,
    headers: &HeaderMap,
    wait: KeyWait,
) -> Result<Option<Arc<AccessToken>>, Refusal> {
    let tokens = match tokens {
        TokenVerificationMode::Sample(token) => return Ok(Some(token.clone())),
        TokenVerificationMode::Verified(tokens) => tokens,
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

/// The token behind `Bearer` in the one field `Authorization` (RFC 6750, 2.1). The other ways of the RFC, in a form and in
/// the query, do not count. Another scheme is no token.
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
    // One space or more (RFC 9110, 11.4).
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

    /// A token is what follows the scheme, in any case, in the one field that carries it.
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

    /// Two fields, whatever they have, and a scheme without a token are malformed.
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
