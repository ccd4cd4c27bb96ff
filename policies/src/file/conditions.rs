//! Reads the conditions of a route beside method and path.

use super::{key::HOP_BY_HOP, listener, mapping::MappingReader};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    header_name::is_token,
    plan::{MatchConditions, ReservedHeaderNames},
};

pub(super) fn conditions(
    block: &mut MappingReader,
    reserved: &ReservedHeaderNames,
) -> Option<MatchConditions> {
    let hosts = listener::hosts(block);
    let headers = block.text_entries("headers", |name, value| header_condition(name, value, reserved));
    let query = block.text_entries("query", query_condition);
    Some(MatchConditions { hosts, headers: headers?, query: query? })
}

fn header_condition(
    name: &str,
    wanted: &str,
    reserved: &ReservedHeaderNames,
) -> Result<(String, String), Diagnostic> {
    let lower = name.to_ascii_lowercase();
    let reason = match &*lower {
        _ if !is_token(name) => "is not the name of a header field",
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
    check_condition_value(name, wanted).map(|()| (name.to_owned(), wanted.to_owned()))
}

/// Values are compared byte by byte, after surrounding spaces are removed and the escapes of a query are decoded.
fn check_condition_value(name: &str, wanted: &str) -> Result<(), Diagnostic> {
    if !wanted.is_empty() && wanted.trim() == wanted && !wanted.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!("no request has this value of `{name}`: it is empty, or has spaces around it");
    Err(Diagnostic::new(DiagnosticCode::BadCondition, message)
        .with_remedy("write the value that counts, such as `acme`"))
}
