//! Proposes a key for each operation that writes, or gives the reason for which it has none.

use fencegate_policies::{
    diagnostics::{DiagnosticCode, Severity},
    file,
};

use super::{
    operation::{ApiOperation, ApiOperations, ApiRequestBody, ParameterPlace, RequiredBodyValue},
    overlap,
    path::OpenApiPathTemplate,
    policy_parts::{
        ENDPOINTS, FENCING, LISTENER_AND_ZOOKEEPER, ProposedKey, RESPONSE_TIMEOUT, UPSTREAM, route_lines,
    },
    proposal::{RouteFenceDecision, RouteProposal, RouteProposals},
    resources::{NamedResource, ResourceIndex, normalize_parameter_name},
    schema::KeyValueFormat,
};

/// Decides for each operation which route it gets. `prefix`: the path of the server, which stands before each
/// path.
pub(super) fn propose(read: ApiOperations, prefix: &str) -> RouteProposals {
    let ApiOperations { operations, unread_paths } = read;
    let paths: Vec<_> =
        operations.iter().map(|operation| OpenApiPathTemplate::parse(prefix, &operation.path)).collect();
    let mut index = ResourceIndex::default();
    for (operation, path) in operations.iter().zip(&paths) {
        path.iter().for_each(|path| index.add(path, operation.is_read()));
    }
    let proposed = operations.iter().zip(paths).map(|(operation, path)| RouteProposal {
        method: operation.method.clone(),
        path: format!("{prefix}{}", operation.path),
        decision: decide(operation, &path, &index),
        template: path.ok().map(|path| path.template),
        idempotency: idempotency_source(operation),
    });
    let mut proposals: Vec<_> = proposed.collect();
    proposals.sort_by(|one, other| one.route_sort_key().cmp(&other.route_sort_key()));
    let unread_paths = unread_paths.iter().map(|path| format!("{prefix}{path}")).collect();
    let mut proposals = RouteProposals { proposals, unread_paths };
    overlap::withdraw_overlapping_routes(&mut proposals);
    proposals
}

fn undecided(reason: impl Into<String>) -> RouteFenceDecision {
    RouteFenceDecision::Undecided { reason: reason.into(), candidates: Vec::new() }
}

fn decide(
    operation: &ApiOperation,
    path: &Result<OpenApiPathTemplate, String>,
    index: &ResourceIndex,
) -> RouteFenceDecision {
    let path = match path {
        Ok(path) => path,
        Err(reason) => return undecided(reason),
    };
    if operation.has_own_servers {
        return undecided("it has `servers` of its own, so its path may begin in another way");
    }
    if operation.is_read() {
        return match check_route_policy(&operation.method, &path.template, "none") {
            Ok(_) => RouteFenceDecision::Read,
            Err(reason) => undecided(reason),
        };
    }
    let proposed = match path.variables.is_empty() {
        false => decide_by_path_parameter(operation, path, index),
        true => decide_by_required_value(operation, path, index),
    };
    match proposed {
        RouteFenceDecision::Fence { key, mut doubts, .. } => {
            doubts.extend(operation.unread.iter().cloned());
            match check_route_policy(&operation.method, &path.template, &key.fence_yaml()) {
                Ok(has_filter) => RouteFenceDecision::Fence { key, doubts, has_filter },
                Err(reason) => undecided(reason),
            }
        }
        other => other,
    }
}

/// A key for an operation whose path has parameters: the first parameter names the resource.
fn decide_by_path_parameter(
    operation: &ApiOperation,
    path: &OpenApiPathTemplate,
    index: &ResourceIndex,
) -> RouteFenceDecision {
    let Some((first, rest)) = path.variables.split_first() else {
        return undecided("the path has no parameter");
    };
    let filter = operation.path_form(&first.parameter).template_filter_suffix();
    let template = format!("{}/{{path.{}{filter}}}", first.collection, first.name);
    let mut doubts = Vec::new();
    if let Some(last) = rest.last() {
        doubts.push(format!(
            "the key is that of `{{{}}}`; if requests for two `{{{}}}` of it may run at the same time, take both into the key",
            first.name, last.name
        ));
    }
    for other in rest.iter().filter(|other| other.collection != first.collection) {
        if let Some(elsewhere) = index.single_resource_lock_path(&other.collection) {
            doubts.push(format!(
                "`{elsewhere}` locks one of `{}` alone; if it is the same as `{{{}}}`, write `keys` with both",
                other.collection, other.name
            ));
        }
    }
    for (source, named) in values_naming_resources(operation, index, None) {
        if named.collection != first.collection {
            doubts.push(format!(
                "`{{{source}}}` seems to name what `{}` locks; if this request changes that as well, write `keys` with both",
                named.path
            ));
        }
    }
    RouteFenceDecision::Fence { key: ProposedKey { template, is_set: false }, doubts, has_filter: false }
}

/// A key for an operation whose path has no parameters. A value that every request has names the resource, if
/// a parameter of another path has the same name.
fn decide_by_required_value(
    operation: &ApiOperation,
    path: &OpenApiPathTemplate,
    index: &ResourceIndex,
) -> RouteFenceDecision {
    let own = path.template.rsplit('/').find(|segment| !segment.is_empty());
    let named = values_naming_resources(operation, index, own);
    let key = |value: &RequiredKeyCandidate, collection: &str| ProposedKey {
        template: format!("{collection}/{{{}{}}}", value.source, value.form.template_filter_suffix()),
        is_set: value.source.contains('*'),
    };
    let values = required_values(operation);
    match &*named {
        [(source, resource)] => {
            let value = values.iter().find(|value| value.source == *source);
            let Some(value) = value else { return undecided("nothing in the request names a resource") };
            let mut doubts = vec![format!(
                "the key is that of `{}`, because `{}` has the name of its parameter",
                resource.path, value.name
            )];
            if source.starts_with("body:") || source.starts_with("form.") {
                doubts.extend(body_doubts(&operation.body));
            }
            RouteFenceDecision::Fence { key: key(value, resource.collection), doubts, has_filter: false }
        }
        [] => {
            let candidates: Vec<_> =
                values.iter().take(MOST_CANDIDATES).map(|value| key(value, &value.name)).collect();
            let reason = match (candidates.is_empty(), &operation.body) {
                (false, _) => "which of its values names the resource is not in the document",
                (true, ApiRequestBody::Other) => {
                    "its body is no JSON and no form, and nothing else that it has names a resource"
                }
                (true, _) => "nothing that each request has names a resource",
            };
            RouteFenceDecision::Undecided { reason: reason.into(), candidates }
        }
        several => {
            let find = |source: &str| values.iter().find(|value| value.source == source);
            let keys =
                several.iter().filter_map(|(source, named)| Some(key(find(source)?, named.collection)));
            let reason =
                "several of its values name resources, and which of them it changes is not in the document";
            RouteFenceDecision::Undecided {
                reason: reason.into(),
                candidates: keys.take(MOST_CANDIDATES).collect(),
            }
        }
    }
}

/// The questions that the document leaves open about a key from the body.
fn body_doubts(body: &ApiRequestBody) -> Vec<String> {
    let ApiRequestBody::Values { is_optional, has_other_format, .. } = body else { return Vec::new() };
    let mut doubts = Vec::new();
    if *is_optional {
        doubts.push("the document lets a request come without a body, and it would be refused".into());
    }
    if *has_other_format {
        doubts.push("the document lets a body come in another format, and it would be refused".into());
    }
    doubts
}

/// The most keys that are shown as candidates for one operation, so that the comment stays readable.
const MOST_CANDIDATES: usize = 6;

/// A value that every request of an operation has.
#[derive(Debug, Clone)]
struct RequiredKeyCandidate {
    /// The source as a key writes it: `body:/order_id`.
    source: String,
    name: String,
    form: KeyValueFormat,
}

/// The values that every request of the operation has, without idempotency keys, which name no resource.
fn required_values(operation: &ApiOperation) -> Vec<RequiredKeyCandidate> {
    let mut values = Vec::new();
    for parameter in operation.parameters.iter().filter(|parameter| parameter.is_required) {
        let Some(form) = parameter.form.clone() else { continue };
        let name = &parameter.name;
        let source = match parameter.place {
            ParameterPlace::Path => continue,
            ParameterPlace::Query => format!("query.{name}"),
            ParameterPlace::Header => format!("header.{}", name.to_ascii_lowercase()),
        };
        values.push(RequiredKeyCandidate { source, name: name.clone(), form });
    }
    if let ApiRequestBody::Values { values: of_body, .. } = &operation.body {
        values.extend(of_body.iter().map(|RequiredBodyValue { source, name, form }| RequiredKeyCandidate {
            source: source.clone(),
            name: name.clone(),
            form: form.clone(),
        }));
    }
    values.retain(|value| !is_idempotency(&value.name));
    values
}

/// The values that seem to name a resource of another path, each with that resource.
fn values_naming_resources<'i>(
    operation: &ApiOperation,
    index: &'i ResourceIndex,
    own: Option<&str>,
) -> Vec<(String, NamedResource<'i>)> {
    let named = required_values(operation).into_iter().filter_map(|value| {
        let resource = index.find_named_resource(&value.name, own)?;
        Some((value.source, resource))
    });
    named.collect()
}

fn is_idempotency(name: &str) -> bool {
    let name = normalize_parameter_name(name);
    name.contains("idempotency") || name == "paypalrequestid" || name == "requestid"
}

fn idempotency_source(operation: &ApiOperation) -> Option<String> {
    let of_header = operation
        .parameters
        .iter()
        .find(|parameter| parameter.place == ParameterPlace::Header && is_idempotency(&parameter.name));
    let in_header = of_header.map(|parameter| format!("header.{}", parameter.name.to_ascii_lowercase()));
    in_header.or_else(|| match &operation.body {
        ApiRequestBody::Values { values, .. } => {
            values.iter().find(|value| is_idempotency(&value.name)).map(|value| value.source.clone())
        }
        ApiRequestBody::None | ApiRequestBody::Other => None,
    })
}

/// Checks a policy that has only this route. Returns whether each value has one spelling in its key, or the
/// error of the policy.
fn check_route_policy(method: &str, path: &str, fence: &str) -> Result<bool, String> {
    let lines = route_lines("route", &[method], path, fence);
    let policy = format!(
        "{LISTENER_AND_ZOOKEEPER}upstreams:\n  {UPSTREAM}:\n{ENDPOINTS}\n{FENCING}\n{RESPONSE_TIMEOUT}\nroutes:\n{}\n",
        lines.map(|line| format!("  {line}")).join("\n")
    );
    let loaded = file::load(&policy);
    let mut errors = loaded.diagnostics.iter().filter(|one| one.severity == Severity::Error);
    match errors.next() {
        Some(error) => Err(format!("a route for it would be refused ({}: {})", error.code, error.message)),
        None => Ok(!loaded.hints.iter().any(|hint| hint.code == DiagnosticCode::FreeText)),
    }
}
