//! Compares the conditions of a route on the body of a request with the fence of the route.

use super::{diagnostics::Diagnostics, fence::ParsedFence};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    graphql::GraphqlOperation,
    key::{JsonPointer, KeyTemplate},
    plan::{LargeBodyPolicy, MatchConditions},
};

/// A fenced route with a condition on the body.
pub(super) struct RouteByBody<'r> {
    pub(super) name: &'r str,
    pub(super) conditions: &'r MatchConditions,
    pub(super) fenced: &'r ParsedFence,
    /// The place of the path in the file.
    pub(super) place: SourceSpan,
}

pub(super) fn check_fence(route: &RouteByBody, faults: &Diagnostics) {
    let RouteByBody { name, conditions, fenced, place } = route;
    let fence = &fenced.fence;
    if fence.all_templates().flat_map(KeyTemplate::form_fields).next().is_some() {
        let message =
            format!("route `{name}` is chosen by JSON in the body and takes a value from a form there");
        let remedy = "take the value from JSON, `{body:/id}`, or leave `body` and `graphql` out of `match`";
        faults.push(Diagnostic::new(DiagnosticCode::TwoBodyFormats, message).at(*place).with_remedy(remedy));
    }
    if fence.large_bodies != LargeBodyPolicy::Refuse {
        let message = format!("a body cannot be streamed where route `{name}` is chosen by it");
        let remedy = "leave `large_bodies` out, and raise `limits.max_body` instead";
        faults.push(Diagnostic::new(DiagnosticCode::StreamedBody, message).at(*place).with_remedy(remedy));
    }
    let variable =
        fence.templates().flat_map(KeyTemplate::pointers).find(|pointer| is_graphql_variable(pointer));
    let is_graphql = conditions.graphql.is_some() || conditions.graphql_operation_name_condition().is_some();
    if let Some(variable) = variable.filter(|_| is_graphql) {
        let message = format!(
            "a key of route `{name}` is made of `{{body:{variable}}}`: a client may write another value into the document, and the lock is for this one"
        );
        let remedy = "that is right only where the service runs no documents but those that it knows; otherwise take a key that every mutation has, such as `key: all`";
        faults.push(
            Diagnostic::new(DiagnosticCode::GraphqlVariable, message).at(fenced.placed).with_remedy(remedy),
        );
    }
}

fn is_graphql_variable(pointer: &JsonPointer) -> bool {
    pointer.first_json_member() == Some(GraphqlOperation::VARIABLES)
}
