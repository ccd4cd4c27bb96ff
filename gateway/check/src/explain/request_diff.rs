//! The request that the upstream would receive: the target, and the fields that differ from the client's.

use fencegate_policies::{
    plan::{FencingLevel, GatewayPlan, NestedRequestPolicy},
    token::FencingToken,
};
use fencegate_protocol::headers::{FENCING_NOT_AFTER, FENCING_OPERATION, FENCING_TICKET};
use fencegate_proxy::steps::{forward, key::KeyedRequest};
use hyper::{HeaderMap, header::HeaderValue};
use serde::Serialize;

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct ForwardedRequestDiff {
    pub method: String,
    pub target: String,
    /// Names and values, ordered by name. A value in angle brackets is known only when the request is sent.
    pub added: Vec<(String, String)>,
    /// Fields of the client that are not forwarded.
    pub removed: Vec<String>,
}

impl ForwardedRequestDiff {
    /// Compares the request with `given`, the fields as the client sent them.
    pub(super) fn new(gateway: &GatewayPlan, keyed: KeyedRequest, given: &HeaderMap) -> Self {
        let mut fields = keyed.http.headers().clone();
        stamp_placeholder_token(gateway, &keyed, &mut fields);
        let upstream = gateway.serving.upstream(keyed.upstream);
        forward::write_identity_headers(&mut fields, keyed.identity.as_deref(), upstream);
        mask_volatile_fields(&mut fields);
        let target = keyed.http.uri().path_and_query().map_or("/", |target| target.as_str());
        let new = |name| fields.get_all(name).iter().ne(given.get_all(name));
        let mut added: Vec<(String, String)> = fields
            .iter()
            .filter(|(name, _)| new(*name))
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        added.sort();
        let mut removed: Vec<String> =
            given.keys().filter(|name| !fields.contains_key(*name)).map(ToString::to_string).collect();
        removed.sort();
        Self { method: keyed.http.method().to_string(), target: target.to_owned(), added, removed }
    }
}

/// Replaces values that depend on the sending process and on the client's connection.
fn mask_volatile_fields(fields: &mut HeaderMap) {
    for (name, value) in [
        ("via", "<via>"),
        ("x-forwarded-for", "<client>"),
        ("traceparent", "<trace>"),
        ("x-request-id", "<request>"),
    ] {
        if let Some(field) = fields.get_mut(name) {
            *field = HeaderValue::from_static(value);
        }
    }
}

/// Stamps the fields as the gateway would, with a placeholder for the token.
fn stamp_placeholder_token(gateway: &GatewayPlan, keyed: &KeyedRequest, fields: &mut HeaderMap) {
    let Some(fenced) = &keyed.fenced else { return };
    let upstream = gateway.serving.upstream(keyed.upstream);
    // The epoch is unlikely to occur in another field, so the fields with the token can be found by it.
    let token = FencingToken::new(1_234_567_890_123, 0, 1).expect("a number that a token may have");
    forward::write_claim_headers(fields, token, &fenced.keys, fenced.mode, upstream);
    let text = token.to_string();
    let number = token.number().to_string();
    for (name, value) in fields.iter_mut() {
        // A client's field of that name has been removed before.
        if gateway.serving.fields.is_reserved_header(name.as_str()) && value.as_bytes() == text.as_bytes() {
            *value = HeaderValue::from_static("<token>");
        } else if gateway.serving.fields.is_reserved_header(name.as_str())
            && value.as_bytes() == number.as_bytes()
        {
            *value = HeaderValue::from_static("<number>");
        }
    }
    fields.insert(FENCING_NOT_AFTER, HeaderValue::from_static("<not-after>"));
    let guarded = upstream.fencing == FencingLevel::Guard;
    let calls_back = fenced.fence(&gateway.serving).nested == NestedRequestPolicy::Allow;
    if gateway.tickets.is_some() && (guarded || calls_back) {
        fields.insert(FENCING_TICKET, HeaderValue::from_static("<ticket>"));
    }
    if let Some(operation) = fenced.operation.as_ref().filter(|_| guarded) {
        let value = HeaderValue::from_str(&operation.to_string()).expect("hex digits and numbers");
        fields.insert(FENCING_OPERATION, value);
    }
}
