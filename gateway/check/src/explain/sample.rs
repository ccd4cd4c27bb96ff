//! The request to explain, as a client would send it.

use std::sync::Arc;

use bytes::Bytes;
use fencegate_config::access_tokens::AccessTokenAuthenticator;
use fencegate_http::body::Body;
use fencegate_policies::{
    key::ClaimValues,
    plan::{BindAddress, JwtSettings},
};
use fencegate_proxy::steps::authenticate::AccessTokenSource;
use fencegate_ticket::AccessToken;
use hyper::{
    HeaderMap, Method, Request, StatusCode, Uri,
    header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING},
};
use serde_json::{Map, Value};

use super::explanation::RefusalExplanation;

/// A request that is explained and not sent.
#[derive(Debug, Clone)]
pub struct SampleRequest {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) fields: HeaderMap,
    pub(super) body: Bytes,
    /// The name in the certificate of the client.
    pub(super) client_name: Option<Arc<str>>,
    /// The claims of the token of the client, as text.
    pub(super) claims: Option<Arc<str>>,
}

/// The arguments do not describe a request.
#[derive(Debug, thiserror::Error)]
pub enum ParseSampleRequestError {
    #[error("`{0}` is no request: write `'POST /v1/orders/42/capture'`")]
    Line(String),
    #[error("`{0}` is no header field: write `'name: value'`")]
    Field(String),
    #[error("`{0}` are no claims of a token: write `'{{\"sub\": \"till-7\"}}'`")]
    Claims(String),
}

impl SampleRequest {
    /// A sample of a request. `line`: method and target; without a method it is GET. `host`: the host that the
    /// client requests.
    ///
    /// # Errors
    /// Returns an error if there is not exactly one target, or if a field is one that no client could send.
    pub fn new(
        line: &str,
        host: &str,
        fields: &[String],
        body: Bytes,
    ) -> Result<Self, ParseSampleRequestError> {
        let (method, target) = match *line.split_ascii_whitespace().collect::<Vec<_>>() {
            [method, target] => (method, target),
            [target] if target.starts_with('/') => ("GET", target),
            _ => return Err(ParseSampleRequestError::Line(line.to_owned())),
        };
        let mut headers = HeaderMap::new();
        for field in fields {
            let (name, value) =
                parse_field(field).ok_or_else(|| ParseSampleRequestError::Field(field.clone()))?;
            headers.append(name, value);
        }
        if !headers.contains_key(HOST) {
            let host = HeaderValue::from_str(host)
                .map_err(|_| ParseSampleRequestError::Field(format!("host: {host}")))?;
            headers.insert(HOST, host);
        }
        let framed = headers.contains_key(TRANSFER_ENCODING) || headers.contains_key(CONTENT_LENGTH);
        if !body.is_empty() && !framed {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let method = method.to_owned();
        let target = target.to_owned();
        Ok(Self { method, target, fields: headers, body, client_name: None, claims: None })
    }

    /// The sample of a client that has presented a certificate with this name in it.
    #[must_use]
    pub fn with_client_name(self, name: Option<&str>) -> Self {
        Self { client_name: name.map(Arc::from), ..self }
    }

    /// The sample of a client that has sent a bearer token with these claims, a JSON object, which the gateway
    /// has verified.
    ///
    /// # Errors
    /// Returns an error if the text is no JSON object.
    pub fn with_claims(self, claims: Option<&str>) -> Result<Self, ParseSampleRequestError> {
        let is_object = |text: &&str| serde_json::from_str::<Map<String, Value>>(text).is_ok();
        if let Some(bad) = claims.filter(|text| !is_object(text)) {
            return Err(ParseSampleRequestError::Claims(bad.to_owned()));
        }
        Ok(Self { claims: claims.map(Arc::from), ..self })
    }

    /// The token of the request: the sample's claims, or else a real token in the fields, which is verified if
    /// the keys of its issuer are in a file. Nothing is fetched.
    pub(super) fn token_verification_mode(&self, jwt: &JwtSettings) -> AccessTokenSource {
        let Some(claims) = &self.claims else {
            // A file that cannot be used is reported by `check --online`.
            let opened = AccessTokenAuthenticator::open_unfetched(jwt).ok().flatten();
            return AccessTokenSource::Verified(opened);
        };
        // Claims that are ambiguous have no values; a gateway would refuse the token.
        let claims = ClaimValues::parse(claims.as_bytes(), &jwt.claims).unwrap_or_default();
        AccessTokenSource::Sample(Arc::new(AccessToken::for_display(claims)))
    }

    /// The request as the HTTP library would deliver it, or its refusal.
    pub(super) fn to_request(&self) -> Result<Request<Body>, RefusalExplanation> {
        let method = Method::from_bytes(self.method.as_bytes())
            .map_err(|error| RefusalExplanation::for_unreadable_request(StatusCode::BAD_REQUEST, &error))?;
        let target = Uri::try_from(&*self.target)
            .map_err(|error| RefusalExplanation::for_unreadable_request(StatusCode::BAD_REQUEST, &error))?;
        let mut request = Request::new(Body::from_bytes(self.body.clone()));
        *request.method_mut() = method;
        *request.uri_mut() = target;
        *request.headers_mut() = self.fields.clone();
        Ok(request)
    }
}

fn parse_field(field: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = field.split_once(':')?;
    let value = value.trim_matches([' ', '\t']);
    Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value.as_bytes()).ok()?))
}

/// The host that a client uses for this listener, if no other name is given.
pub fn default_host(listener: &BindAddress) -> String {
    match listener {
        BindAddress::Unix(_) => "localhost".to_owned(),
        BindAddress::Tcp(unspecified) if unspecified.ip().is_unspecified() => {
            format!("localhost:{}", unspecified.port())
        }
        BindAddress::Tcp(address) => address.to_string(),
    }
}
