//! Stamps every dispatch with its token, its keys, and the moment after which it must not be started. It runs last,
//! so that no other step can strip the fields.

use std::fmt::Write as _;

use fencegate_guard_client::dispatch_window::DispatchWindow;
use fencegate_lock::manager::grant_guard::UpstreamDispatch;
use fencegate_policies::{
    key::{ResourceKey, join_keys},
    not_after::NotAfter,
    plan::{FencingLevel, LockMode, TokenHeaderNames, Upstream},
    token::FencingToken,
};
use fencegate_process::{
    clock::{BootInstant, Clock},
    failpoint,
};
use fencegate_protocol::headers::{
    FENCING_HOPS, FENCING_KEY, FENCING_MODE, FENCING_NOT_AFTER, FENCING_NUMBER, FENCING_TOKEN,
};
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};

use crate::steps::{authorized::DispatchPermit, extract_claim::parse_headers};

/// Stamps a new dispatch, with the next dispatch number; each new connection gets one. Returns it with the moment
/// after which it must not be started: the end of its lock validity as known now, or `response_timeout` from now, if
/// that is sooner.
pub(super) fn stamp_dispatch_headers(
    headers: &mut HeaderMap,
    hold: &impl DispatchPermit,
    upstream: &Upstream,
    clock: &dyn Clock,
) -> Result<(UpstreamDispatch, BootInstant), Refusal> {
    let no_token = || Refusal::new(RefusalReason::KeyLimit, "the tenure has no further token");
    let dispatch = hold.next_dispatch().ok_or_else(no_token)?;
    write_claim_headers(headers, dispatch.token, hold.keys(), hold.mode(), upstream);
    let now = clock.now();
    let longest = now + upstream.response_timeout;
    let deadline = dispatch.validity.valid_until().min(longest);
    let announced = if failpoint::is_disabled_by_test("rule_not_after") { longest } else { deadline };
    let is_signed = upstream.fencing == FencingLevel::Guard;
    let span =
        DispatchWindow { not_after: clock.not_after(announced), remaining: deadline.since(now), is_signed };
    let not_after = hold.add_permit_headers(dispatch.token, headers, span);
    headers.insert(FENCING_NOT_AFTER, not_after_header_value(&not_after));
    Ok((dispatch, deadline))
}

/// The value of `Fencing-Not-After`.
fn not_after_header_value(not_after: &NotAfter) -> HeaderValue {
    let mut text = String::with_capacity(NotAfter::LONGEST);
    write!(text, "{not_after}").expect("a text takes all that is written");
    HeaderValue::try_from(text).expect("digits and an id are visible ASCII")
}

/// Writes the token, the keys and the mode.
pub fn write_claim_headers(
    headers: &mut HeaderMap,
    token: FencingToken,
    keys: &[ResourceKey],
    mode: LockMode,
    upstream: &Upstream,
) {
    let value = |text: &[u8]| HeaderValue::from_bytes(text).expect("tokens and keys are visible ASCII");
    // A guard reads the fields by their standard names, whatever the service behind the guard calls them.
    let fields = match upstream.fencing {
        FencingLevel::Guard => &TokenHeaderNames::default(),
        FencingLevel::None | FencingLevel::Delay(_) | FencingLevel::Upstream => &upstream.fields,
    };
    headers.insert(configured_header_name(&fields.token, FENCING_TOKEN), value(&token.to_ascii()));
    headers.insert(configured_header_name(&fields.number, FENCING_NUMBER), HeaderValue::from(token.number()));
    headers.insert(
        FENCING_KEY,
        match keys {
            [key] => value(key.as_str().as_bytes()),
            several => value(join_keys(several).as_bytes()),
        },
    );
    headers.insert(FENCING_MODE, HeaderValue::from_static(mode.as_str()));
    if upstream.fencing == FencingLevel::Guard {
        headers.insert(FENCING_HOPS, HeaderValue::from(parse_headers::count_via_hops(headers)));
    }
}

/// The name that the upstream wants for a field. It is usually the standard name, which costs no parsing.
fn configured_header_name(name: &str, usual: HeaderName) -> HeaderName {
    // Both names are in lower case, so they can be compared as they are.
    if name == usual.as_str() {
        return usual;
    }
    HeaderName::from_bytes(name.as_bytes()).expect("the plan holds field names")
}
