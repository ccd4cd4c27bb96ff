//! Compares the explanation of a request with its real outcome.

use std::collections::BTreeSet;

use fencegate_check::explain::RequestExplanation;
use fencegate_tests::{origin::RequestRecord, wire::HttpWireMessage};
use serde_json::Value;

use super::spelled::{HOST, SpelledRequest};

/// Compares the explanation with the answer and the record.
pub(super) fn compare(
    explanation: &RequestExplanation,
    spelled: &SpelledRequest,
    answer: &HttpWireMessage,
    record: Option<&RequestRecord>,
) {
    let context = || format!("{spelled:?}\nsaid {explanation:#?}\ncame {answer:?}\nrecorded {record:?}");
    let status: u16 = answer.word(1).parse().expect("a status");
    match (&explanation.refused, explanation.answered, &explanation.sent) {
        (Some(refused), ..) => {
            assert_eq!((status, record.is_none()), (refused.status, true), "{}", context());
            if let (Some(reason), false) = (refused.reason, answer.body.is_empty()) {
                let problem: Value = serde_json::from_slice(&answer.body).expect("a problem");
                assert_eq!(problem["reason"], reason, "{}", context());
                assert_eq!(problem["outcome"], refused.outcome, "{}", context());
            }
        }
        (None, Some(answered), _) => {
            assert_eq!((status, record.is_none()), (answered, true), "{}", context());
        }
        (None, None, Some(sent)) => {
            let record = record.unwrap_or_else(|| panic!("nothing arrived\n{}", context()));
            assert_eq!(status, 200, "{}", context());
            assert_eq!(record.request.start, format!("{} {} HTTP/1.1", sent.method, sent.target));
            let keys = explanation
                .lock
                .as_ref()
                .map(|lock| lock.keys.iter().map(|held| held.key.as_str()).collect());
            let keys: Option<Vec<&str>> = keys;
            assert_eq!(record.key(), keys.map(|keys| keys.join(", ")).as_deref(), "{}", context());
            assert_eq!(fields_of(record), expected_fields(explanation, spelled), "{}", context());
        }
        (None, None, None) => panic!("said nothing: {}", context()),
    }
}

/// The fields of a record, with names in lower case. Values that differ in each run, such as tokens, become
/// placeholders.
fn fields_of(record: &RequestRecord) -> BTreeSet<(String, String)> {
    let plain = |(name, value): &(String, String)| match name.to_lowercase().as_str() {
        name @ "fencing-token" => (name.to_owned(), "<token>".to_owned()),
        name @ "fencing-not-after" => (name.to_owned(), "<not-after>".to_owned()),
        name @ "fencing-ticket" => (name.to_owned(), "<ticket>".to_owned()),
        name @ "fencing-number" => (name.to_owned(), "<number>".to_owned()),
        name @ "via" => (name.to_owned(), "<via>".to_owned()),
        name @ "x-forwarded-for" => (name.to_owned(), "<client>".to_owned()),
        name @ "traceparent" => (name.to_owned(), "<trace>".to_owned()),
        name @ "x-request-id" => (name.to_owned(), "<request>".to_owned()),
        name => (name.to_owned(), value.clone()),
    };
    record.request.fields.iter().map(plain).collect()
}

/// The fields that the service should get: the client's own fields except those that the gateway removes, and the
/// added fields.
fn expected_fields(explanation: &RequestExplanation, spelled: &SpelledRequest) -> BTreeSet<(String, String)> {
    let sent = explanation.sent.as_ref().expect("it is sent");
    let written = spelled.fields.iter().filter_map(|field| field.split_once(':'));
    let written = written.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
    let length =
        (!spelled.body.is_empty()).then(|| ("content-length".to_owned(), spelled.body.len().to_string()));
    let host = ("host".to_owned(), HOST.to_owned());
    let named = written.clone().any(|(name, _)| name == "host");
    let kept = written.chain(length).chain((!named).then_some(host));
    let gone =
        |name: &String| sent.removed.contains(name) || sent.added.iter().any(|(added, _)| added == name);
    kept.filter(|(name, _)| !gone(name)).chain(sent.added.iter().cloned()).collect()
}

/// Compares the explanation with the line of the gateway in its access log.
pub(super) fn compare_line(explanation: &RequestExplanation, line: &Value) {
    let context = || format!("said {explanation:#?}\nwritten {line:#}");
    assert_eq!(
        line["route"].as_str().unwrap_or("none"),
        explanation.route.as_deref().unwrap_or("none"),
        "{}",
        context()
    );
    if let Some(refused) = &explanation.refused {
        assert_eq!(line["reason"].as_str(), refused.reason, "{}", context());
        // A request without a lock has no outcome in the log.
        let outcome = line["outcome"].as_str().unwrap_or(refused.outcome);
        assert_eq!(outcome, refused.outcome, "{}", context());
    }
    if let (Some(lock), Some(key)) = (&explanation.lock, line["key"].as_str()) {
        let keys: Vec<&str> = lock.keys.iter().map(|held| held.key.as_str()).collect();
        assert_eq!(key, keys.join(", "), "{}", context());
    }
}
