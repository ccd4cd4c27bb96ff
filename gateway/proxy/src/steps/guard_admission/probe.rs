//! Probes the upstream about an operation whose answer was lost.

use std::{sync::Arc, time::Duration};

use fencegate_policies::{
    load_balance,
    plan::{OutcomeProbeSettings, host_header},
};
use fencegate_process::failpoint;
use hyper::{
    Method, Request,
    header::{HOST, HeaderName, HeaderValue},
};
use tokio::time::timeout;
use tracing::{debug, info};

use fencegate_guard_store::{dispatch_target::DispatchTarget, operation::OperationJournalEntry};
use fencegate_http::{body::Body, network::Network};
use fencegate_http_client::upstream::{endpoint_set::EndpointSet, pool::ConnectionPool};

/// The answer of the upstream to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutcomeProbeAnswer {
    Done,
    NotDone,
    /// There was no answer, or its status is none that the policy names.
    Unclear,
}

impl OutcomeProbeAnswer {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NotDone => "not done",
            Self::Unclear => "unclear",
        }
    }
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Sends one probe, on a connection of its own. `place` is the address to which the request went, if it is known. The
/// probe goes to the same endpoint, because another instance may not know that the first one is about to execute the
/// request.
///
/// # Cancellation
/// Dropping the future closes the connection.
pub(super) async fn probe_operation<N: Network>(
    pool: &ConnectionPool<N>,
    endpoints: &Arc<EndpointSet>,
    probe: &OutcomeProbeSettings,
    entry: &OperationJournalEntry,
    place: Option<&DispatchTarget>,
) -> OutcomeProbeAnswer {
    let answered = timeout(probe.timeout, fetch_probe_status(pool, endpoints, probe, entry, place)).await;
    let verdict = match answered.unwrap_or_else(|_| Err("no answer in time".into())) {
        Ok(status) if probe.done.contains(&status) => OutcomeProbeAnswer::Done,
        Ok(status) if probe.not_done.contains(&status) => OutcomeProbeAnswer::NotDone,
        Ok(status) => {
            debug!(status, "the probe was answered with a status that says nothing");
            OutcomeProbeAnswer::Unclear
        }
        Err(error) => {
            debug!(why = error, "the probe was not answered");
            OutcomeProbeAnswer::Unclear
        }
    };
    info!(token = %entry.token, verdict = verdict.as_str(), "guard.probed");
    verdict
}

async fn fetch_probe_status<N: Network>(
    pool: &ConnectionPool<N>,
    endpoints: &Arc<EndpointSet>,
    probe: &OutcomeProbeSettings,
    entry: &OperationJournalEntry,
    place: Option<&DispatchTarget>,
) -> Result<u16, String> {
    let name = probeable_operation_name(entry).ok_or("no Idempotency-Key names it, and nothing else")?;
    let mut cursor = endpoints.cursor(|| load_balance::hash_name(name));
    cursor.fresh = true;
    let sent_to =
        place.and_then(|place| endpoints.endpoints().iter().find(|one| *one.name == *place.endpoint));
    if let Some(endpoint) = sent_to {
        cursor.pin_to(endpoint);
    }
    let mut checkout = pool.checkout(&mut cursor).await.map_err(|error| error.to_string())?;
    let path = probe.path.replace("{operation}", &escape_operation_name(unquote_operation_name(name)));
    let host = HeaderValue::from_str(host_header(checkout.endpoint())).map_err(|error| error.to_string())?;
    let request = Request::builder().method(Method::GET).uri(path).header(HOST, host);
    let named = HeaderValue::from_str(name).map_err(|error| error.to_string())?;
    let field = match endpoints.upstream.operation_field.as_deref() {
        Some(field) => HeaderName::from_bytes(field.as_bytes()).map_err(|error| error.to_string())?,
        None => IDEMPOTENCY_KEY,
    };
    let mut request = request.header(field, named);
    if probe.closes {
        // With the token the service closes the operation's name for dispatches up to this one. A repeat has a larger
        // token, so it may still run.
        let fields = &endpoints.upstream.fields;
        request = request
            .header(&fields.token, entry.token.to_string())
            .header(&fields.number, entry.token.number().to_string());
    }
    let request = request.body(Body::empty()).map_err(|error| error.to_string())?;
    checkout.gate().arm(None);
    let answer = checkout.pooled().send(request).await.map_err(|failed| failed.why.to_string())?;
    Ok(answer.status().as_u16())
}

/// The name by which the upstream identifies this operation alone; `None` if there is no such name. With an empty
/// name, or one that changes the path, the probe would be about something else, such as the list of all operations.
/// If operations have principals, it could be about the operation of another principal.
fn probeable_operation_name(entry: &OperationJournalEntry) -> Option<&str> {
    let name = entry
        .name
        .as_deref()
        .filter(|_| entry.askable || failpoint::is_disabled_by_test("rule_principal"))?;
    (!["", ".", ".."].contains(&&*unquote_operation_name(name))).then_some(name)
}

/// Returns the text of a quoted string (RFC 8941), and any other value unchanged.
fn unquote_operation_name(name: &str) -> String {
    let Some(inner) = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return name.into();
    };
    inner.replace("\\\"", "\"").replace("\\\\", "\\")
}

fn escape_operation_name(name: String) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// The pauses between probes. Each is twice as long as the one before, and their sum is about `most`.
pub(super) fn probe_backoff(most: Duration) -> impl Iterator<Item = Duration> {
    let first = Duration::from_millis(200);
    std::iter::successors(Some(first), |pause| Some(*pause * 2)).take_while(move |pause| *pause < most)
}

#[cfg(test)]
mod tests {
    use fencegate_policies::token::FencingToken;

    use super::*;
    use fencegate_guard_store::operation::JournalEntryState;

    /// The outcome is probed only for an operation that can be told from all others by its name alone.
    #[test]
    fn only_operation_unique_by_name_is_probed() {
        let entry = |name: Option<&str>, askable| OperationJournalEntry {
            format: 1,
            fingerprint: String::new(),
            keys: Vec::new(),
            token: FencingToken::new(1, 0, 1).expect("a token"),
            method: "POST".into(),
            target: "/".into(),
            name: name.map(str::to_owned),
            askable,
            admitted: 0,
            began: None,
            keep: 0,
            state: JournalEntryState::Admitted,
        };
        assert_eq!(probeable_operation_name(&entry(Some("\"a\""), true)), Some("\"a\""));
        assert_eq!(
            probeable_operation_name(&entry(Some("a"), false)),
            None,
            "another principal may use this name"
        );
        for nothing in [None, Some(""), Some("\"\""), Some("."), Some("\"..\"")] {
            assert_eq!(probeable_operation_name(&entry(nothing, true)), None, "{nothing:?}");
        }
    }

    /// The name of an operation is escaped, so that it is one segment of the path of a probe.
    #[test]
    fn name_is_one_path_segment() {
        assert_eq!(escape_operation_name(unquote_operation_name("\"a/b \\\"c\\\"\"")), "a%2Fb%20%22c%22");
        assert_eq!(escape_operation_name(unquote_operation_name("8e03978e-40d5")), "8e03978e-40d5");
        assert_eq!(escape_operation_name(unquote_operation_name("../x?y#z")), "..%2Fx%3Fy%23z");
    }
}
