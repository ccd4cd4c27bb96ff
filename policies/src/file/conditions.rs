//! Reads the conditions of a route other than method and path.

use super::{key::HOP_BY_HOP, listener, mapping::MappingReader, yaml::YamlScalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    graphql::GraphqlOperation,
    header_name::is_http_token,
    key::{JsonPointer, JsonValues, has_unprintable},
    plan::{BodyCondition, ConditionValue, MatchConditions, ReservedHeaderNames},
};

pub(super) fn conditions(
    block: &mut MappingReader,
    reserved: &ReservedHeaderNames,
) -> Option<MatchConditions> {
    let hosts = listener::hosts(block);
    let headers = block.text_entries("headers", |name, value| header_condition(name, value, reserved));
    let query = block.text_entries("query", query_condition);
    let body = block.value_lists("body", body_condition);
    let graphql = block.keyword("graphql", GraphqlOperation::WORDS);
    Some(MatchConditions { hosts, headers: headers?, query: query?, body: body?, graphql })
}

fn body_condition(pointer: &str, values: &[&YamlScalar]) -> Result<BodyCondition, Diagnostic> {
    let bad = |message: String, remedy: &str| {
        Diagnostic::new(DiagnosticCode::BadCondition, message).with_remedy(remedy)
    };
    let parsed = JsonPointer::parse(pointer).map_err(|_| {
        let message = format!("`{pointer}` names no member of a body");
        bad(message, "write a pointer, such as `/operationName: GetOrder` or `/payment/kind: [refund, void]`")
    })?;
    if parsed.is_list() || parsed.items().next().is_some() || parsed.foreign_wildcard().is_some() {
        let message = format!("`{pointer}` names items of a list, and a list may have any number of them");
        return Err(bad(message, "name one member: `/kind`, `/payment/kind`"));
    }
    let values = values.iter().map(|value| condition_value(pointer, value)).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = values.first() else {
        let message = format!("no request has one of no values of `{pointer}`");
        return Err(bad(message, "write the values that count: `[refund, void]`"));
    };
    if !values.iter().all(|value| value.has_same_type(first)) {
        let message = format!(
            "the values of `{pointer}` are of several types, and a service may convert one into another"
        );
        return Err(bad(
            message,
            "write texts, integers or truth values alone; a text that looks like a number stands in quotes",
        ));
    }
    Ok(BodyCondition { pointer: parsed, values })
}

/// Reads the value of a condition on a JSON body. A number or truth value without quotes stands for the same type
/// in JSON.
fn condition_value(pointer: &str, value: &YamlScalar) -> Result<ConditionValue, Diagnostic> {
    let text = &value.text;
    if value.is_text {
        return check_condition_value(pointer, text).map(|()| ConditionValue::Text(text.clone()));
    }
    // The text is parsed as JSON, so that it has the value that JSON gives it.
    let parsed = serde_json::from_str::<ConditionValue>(text).ok().filter(|value| match value {
        ConditionValue::Integer(number) => number.unsigned_abs() <= JsonValues::LARGEST_IN_DOUBLE,
        ConditionValue::Boolean(_) => true,
        ConditionValue::Text(_) => false,
    });
    parsed.filter(|value| value.to_string() == *text).ok_or_else(|| {
        let message =
            format!("`{text}` is no value of `{pointer}` that every reader of JSON takes for the same");
        Diagnostic::new(DiagnosticCode::BadCondition, message)
            .with_remedy("write a text in quotes, an integer up to 2^53, `true` or `false`")
    })
}

fn header_condition(
    name: &str,
    wanted: &str,
    reserved: &ReservedHeaderNames,
) -> Result<(String, String), Diagnostic> {
    let lower = name.to_ascii_lowercase();
    let reason = match &*lower {
        _ if !is_http_token(name) => "is not the name of a header field",
        "host" => "has many spellings for one host: use `hosts`",
        _ if reserved.is_reserved_header(&lower) => "is removed from what clients send",
        _ if HOP_BY_HOP.contains(&&*lower) => "belongs to a connection, not to a request",
        _ => return check_condition_value(name, wanted).map(|()| (lower, wanted.to_owned())),
    };
    let fault = Diagnostic::new(
        DiagnosticCode::BadCondition,
        format!("no request can be told by `{name}`: it {reason}"),
    );
    Err(fault.with_remedy("write a field that the client sends, such as `x-tenant: acme`"))
}

fn query_condition(name: &str, wanted: &str) -> Result<(String, String), Diagnostic> {
    if name.is_empty() {
        return Err(Diagnostic::new(DiagnosticCode::BadCondition, "a parameter of the query has a name")
            .with_remedy("write the name before its value: `query: {kind: book}`"));
    }
    if has_unprintable(name) {
        let message = "the name of a parameter has no control characters and no byte order mark";
        return Err(Diagnostic::new(DiagnosticCode::BadCondition, message)
            .with_remedy("write the name as clients send it: `query: {kind: book}`"));
    }
    check_condition_value(name, wanted).map(|()| (name.to_owned(), wanted.to_owned()))
}

/// Checks that a request can have the wanted value. Values are compared byte by byte, after surrounding spaces
/// are removed and the escapes of a query are decoded.
fn check_condition_value(name: &str, wanted: &str) -> Result<(), Diagnostic> {
    if !wanted.is_empty() && wanted.trim() == wanted && !has_unprintable(wanted) {
        return Ok(());
    }
    let message = match has_unprintable(wanted) {
        true => format!(
            "no request has this value of `{name}`: it has a control character or a byte order mark in it"
        ),
        false => format!("no request has this value of `{name}`: it is empty, or has spaces around it"),
    };
    Err(Diagnostic::new(DiagnosticCode::BadCondition, message)
        .with_remedy("write the value that counts, such as `acme`"))
}
