//! Decides who may use the admin listener: a request must address it by its own host name, present the required
//! credentials, and not change anything from a page of another site. A form must also contain the CSRF token of
//! this process.
//!
//! A browser on an operator's machine reaches loopback addresses, too, whatever page it shows. So a host name
//! that a foreign name server could resolve to this machine is rejected (DNS rebinding), pages of other origins
//! get no permission (no CORS), and a request that changes something must come from a page of this listener or
//! from no page.

use std::{net::IpAddr, sync::Arc, time::Duration};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version,
        header::{
            AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY,
            WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use fencegate_config::bearer::{BearerTokenFileError, ExpectedBearerToken};
use fencegate_policies::{host::CanonicalHost, plan};
use fencegate_process::randomness::{Guid, Randomness};
use tokio::time::timeout;
use tracing::{info, warn};

use super::error::{AdminErrorCode, AdminRefusal};
use crate::error::AuditAction;

/// The credentials that every caller must show.
#[derive(Debug, Clone)]
pub struct AdminAuth {
    admin: Arc<plan::AdminListenerSettings>,
    /// `None`: no token is required.
    pub(super) bearer: Option<ExpectedBearerToken>,
}

/// The connection of a request.
#[derive(Debug, Clone)]
pub(crate) struct AdminConnectionInfo {
    pub address: IpAddr,
    /// The name in the verified certificate of the caller.
    pub certificate: Option<Arc<str>>,
    pub secured: bool,
}

/// The name of the caller in the audit log.
#[derive(Debug, Clone)]
pub(crate) struct AdminPrincipal(pub Arc<str>);

/// The names of callers without credentials, on this machine and elsewhere.
const LOCAL: &str = "local";
const NOBODY: &str = "nobody";

impl AdminPrincipal {
    /// True if the caller has shown credentials, and the listener has verified them.
    pub(super) fn is_authenticated(&self) -> bool {
        ![LOCAL, NOBODY].contains(&&*self.0)
    }
}

/// The longest time for a request and its response. When it is over, nothing that was begun is undone.
const LONGEST: Duration = Duration::from_secs(60);

/// The paths that are open to probes and guards, which have no credentials. These paths contain no secrets.
const OPEN: [&str; 3] = ["/live", "/ready", "/jwks.json"];

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The content security policy: no resources from elsewhere, no inline scripts, no frames, and forms that are
/// only sent to this listener.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Admits a request or refuses it. A request that changes something leaves one line in the log, whatever its result.
pub async fn authenticate(State(admin_auth): State<AdminAuth>, mut request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<AdminConnectionInfo>().cloned().expect("set with the connection");
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let changes = !matches!(method, Method::GET | Method::HEAD);
    let admitted = admin_auth.authorize(&request, &caller, changes);
    let principal = admitted.as_ref().map_or_else(|_| NOBODY.into(), |principal| principal.0.clone());
    let run = async move {
        match admitted {
            Ok(admitted) => {
                request.extensions_mut().insert(admitted);
                timeout(LONGEST, next.run(request)).await.unwrap_or_else(|_| timeout_response())
            }
            Err(fault) => fault.into_response(),
        }
    };
    if !changes {
        return add_security_headers(run.await);
    }
    // The request runs as a task of its own, so that neither a caller that closes its connection nor a panic
    // keeps the line out of the log.
    let done = tokio::spawn(run);
    let audited = tokio::spawn(async move {
        let answer = done.await.unwrap_or_else(|_| unknown_outcome_response());
        log_admin_action(&principal, &caller, &method, &path, &answer);
        answer
    });
    add_security_headers(audited.await.unwrap_or_else(|_| unknown_outcome_response()))
}

fn unknown_outcome_response() -> Response {
    AdminRefusal::new(AdminErrorCode::Unknown, "it went wrong on the way; it may have been done: look again")
        .into_response()
}

fn timeout_response() -> Response {
    AdminRefusal::new(AdminErrorCode::Late, "no answer in time; what was asked for may go on").into_response()
}

fn log_admin_action(
    principal: &str,
    caller: &AdminConnectionInfo,
    method: &Method,
    path: &str,
    answer: &Response,
) {
    let did = answer.extensions().get::<AuditAction>().map(|did| did.0.as_str());
    let status = answer.status().as_u16();
    let peer = caller.address;
    // A path can contain a key. The handler's own description contains the key only as the policy allows.
    let asked = did.map_or_else(|| action_name(path), str::to_owned);
    if answer.status().is_success() || answer.status().is_redirection() {
        info!(principal, %peer, %method, asked, status, "audit");
    } else {
        warn!(principal, %peer, %method, asked, status, "audit");
    }
}

/// The action in a path, without its subject: a key can be in any part that no handler matches, so only known
/// words in their own places are logged.
fn action_name(path: &str) -> String {
    let below = path.strip_prefix("/api/v1").filter(|below| below.starts_with('/')).unwrap_or(path);
    let mut parts: Vec<&str> = below.split('/').filter(|part| !part.is_empty()).take(MOST_PARTS).collect();
    let last = parts.len().saturating_sub(1);
    for (place, part) in parts.iter_mut().enumerate() {
        let known = match place {
            0 => THINGS.contains(part),
            1 => false,
            _ => place == last && VERBS.contains(part),
        };
        if !known {
            *part = "*";
        }
    }
    parts.join(".")
}

/// The known first words of paths.
const THINGS: [&str; 17] = [
    "backup",
    "config",
    "contention",
    "drain",
    "jwks.json",
    "keys",
    "leases",
    "live",
    "locks",
    "members",
    "metrics",
    "operations",
    "page.css",
    "page.js",
    "ready",
    "refusals",
    "reload",
];
/// The known last words of paths, after the subject.
const VERBS: [&str; 4] = ["break", "forget", "resolve", "revoke"];
/// The most parts of a path that are logged. No admin path has more.
const MOST_PARTS: usize = 8;

impl AdminAuth {
    /// The rules of this admin listener.
    ///
    /// # Errors
    /// Returns an error if the token cannot be read.
    pub fn new(admin: &plan::AdminListenerSettings) -> Result<Self, BearerTokenFileError> {
        let bearer = admin.bearer.as_deref().map(ExpectedBearerToken::open).transpose()?;
        Ok(Self { admin: Arc::new(admin.clone()), bearer })
    }

    fn authorize(
        &self,
        request: &Request,
        caller: &AdminConnectionInfo,
        changes: bool,
    ) -> Result<AdminPrincipal, AdminRefusal> {
        let Some(host) = request_host(request) else {
            if !changes && is_hostless_probe(request) {
                return self.identify_principal(request, caller);
            }
            return Err(AdminRefusal::new(AdminErrorCode::Host, "one Host field, and only one"));
        };
        if !self.accepts_host(host) {
            let message = format!(
                "this listener is not called `{}`: its names are addresses, `localhost`, and those of `admin.hosts`",
                host.escape_debug()
            );
            return Err(AdminRefusal::new(AdminErrorCode::Host, message));
        }
        let principal = self.identify_principal(request, caller)?;
        if changes && !is_same_origin(request.headers(), host, caller.secured) {
            return Err(AdminRefusal::new(
                AdminErrorCode::CrossOrigin,
                "a page of another origin may change nothing here",
            ));
        }
        Ok(principal)
    }

    fn accepts_host(&self, host: &str) -> bool {
        CanonicalHost::parse(host).is_ok_and(|host| self.admin.accepts_host(&host))
    }

    fn identify_principal(
        &self,
        request: &Request,
        caller: &AdminConnectionInfo,
    ) -> Result<AdminPrincipal, AdminRefusal> {
        if let Some(bearer) = &self.bearer {
            let shown = presented_token(request.headers());
            match shown {
                Some(shown) if bearer.matches(&shown) => return Ok(AdminPrincipal("bearer".into())),
                _ if OPEN.contains(&request.uri().path()) => {}
                Some(_) => {
                    return Err(AdminRefusal::new(
                        AdminErrorCode::Credentials,
                        "not the token that is asked for",
                    ));
                }
                None => {
                    return Err(AdminRefusal::new(
                        AdminErrorCode::Credentials,
                        "a bearer token is asked for",
                    ));
                }
            }
        }
        Ok(AdminPrincipal(match &caller.certificate {
            Some(subject) => subject.clone(),
            None if caller.address.is_loopback() => LOCAL.into(),
            None => NOBODY.into(),
        }))
    }
}

/// The only host that a request names.
fn request_host(request: &Request) -> Option<&str> {
    let mut fields = request.headers().get_all(HOST).iter();
    let field = fields.next();
    let more = fields.next();
    match (request.uri().authority(), field, more) {
        (None, Some(field), None) => field.to_str().ok(),
        // In HTTP/2 the authority replaces the `Host` field.
        (Some(authority), None, None) if request.version() == Version::HTTP_2 => Some(authority.as_str()),
        _ => None,
    }
}

/// True for a request over HTTP/1.0 that names no host, as health checks of balancers do. Browsers always name one, so no page of
/// another site has caused it.
fn is_hostless_probe(request: &Request) -> bool {
    request.version() == Version::HTTP_10
        && request.uri().authority().is_none()
        && !request.headers().contains_key(HOST)
}

/// The token of the request. It may also be the password of a browser's own login dialogue, with any user name.
fn presented_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, rest) = field.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().as_bytes().to_vec());
    }
    let decoded =
        scheme.eq_ignore_ascii_case("basic").then(|| BASE64_STANDARD.decode(rest.trim()).ok())??;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

/// True if the request comes from a page of this listener, or from a program, which sends neither
/// `Sec-Fetch-Site` nor `Origin`.
fn is_same_origin(headers: &HeaderMap, host: &str, secured: bool) -> bool {
    let site = headers.get_all(SEC_FETCH_SITE).iter().all(|site| site == "same-origin" || site == "none");
    let scheme = if secured { "https" } else { "http" };
    let origin = headers.get_all(ORIGIN).iter().all(|origin| {
        origin.to_str().is_ok_and(|origin| origin.eq_ignore_ascii_case(&format!("{scheme}://{host}")))
    });
    site && origin
}

fn add_security_headers(mut answer: Response) -> Response {
    let unauthorised = answer.status() == StatusCode::UNAUTHORIZED;
    let headers = answer.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // The value is not `no-referrer`, because forms of the admin pages would then come from the origin
        // `null`.
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if unauthorised {
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"fencegate\""));
        headers.append(
            WWW_AUTHENTICATE,
            HeaderValue::from_static("Basic realm=\"fencegate\", charset=\"UTF-8\""),
        );
    }
    answer
}

/// A random text that is part of every form of this process, and of nothing else.
#[derive(Clone)]
pub struct CsrfToken(Arc<str>);

impl CsrfToken {
    pub fn new(randomness: &dyn Randomness) -> Self {
        Self(format!("{}{}", Guid::new(randomness), Guid::new(randomness)).into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn verify_form_token(&self, shown: &str) -> Result<(), AdminRefusal> {
        verify_slices_are_equal(self.0.as_bytes(), shown.as_bytes()).map_err(|_| invalid_form_error())
    }
}

fn invalid_form_error() -> AdminRefusal {
    AdminRefusal::new(
        AdminErrorCode::CrossOrigin,
        "the form is older than this process, or not ours: load the page again",
    )
}

#[cfg(test)]
mod tests;
