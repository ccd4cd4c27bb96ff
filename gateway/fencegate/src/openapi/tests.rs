//! Tests the import with documents that have the forms of public interfaces.

use fencegate_policies::{
    diagnostics::Severity,
    file,
    plan::{GatewayPlan, Route},
};

use super::{MARK, OpenApiImportCounts, OpenApiPolicyDraft, import};

/// Has identifiers with patterns, references within the file, and a header that names operations.
const ORDERS: &str = include_str!("testdata/orders.json");
/// Has bodies with required members, an operation that is named in the body, and fixed paths beside
/// parameters.
const SHOP: &str = include_str!("testdata/shop.json");
/// Version 3.1 in YAML; has a server with a path, and paths with several parameters.
const PLATFORM: &str = include_str!("testdata/platform.yaml");

fn imported(document: &str) -> (OpenApiPolicyDraft, GatewayPlan) {
    let imported = import(document).expect("an OpenAPI document");
    let loaded = file::load(&imported.text);
    let errors: Vec<_> = loaded.diagnostics.iter().filter(|one| one.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{}", imported.text);
    (imported, loaded.plan.expect("no errors"))
}

/// The key of the route that takes this method and path template, or `none`.
fn key(plan: &GatewayPlan, method: &str, path: &str) -> Option<String> {
    let takes = |route: &&Route| {
        route.path.to_string() == path && route.methods.iter().any(|known| &**known == method)
    };
    let route = plan.serving.routes.routes().iter().find(takes)?;
    Some(match &route.fence {
        None => "none".to_owned(),
        Some(fence) => fence.keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    })
}

/// The comment lines that contain [`MARK`], without indentation.
fn marks(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| line.contains(MARK)).collect()
}

#[track_caller]
fn assert_keys(plan: &GatewayPlan, expected: &[(&str, &str, Option<&str>)]) {
    for (method, path, expected) in expected {
        assert_eq!(key(plan, method, path).as_deref(), *expected, "{method} {path}");
    }
}

#[test]
fn identifiers_with_patterns_are_keys() {
    let (policy, plan) = imported(ORDERS);
    assert_keys(
        &plan,
        &[
            ("GET", "/v2/checkout/orders/{id}", Some("none")),
            ("HEAD", "/v2/checkout/orders/{id}", Some("none")),
            ("PATCH", "/v2/checkout/orders/{id}", Some("orders/{path.id | match('[A-Z0-9]+')}")),
            ("POST", "/v2/checkout/orders/{id}/capture", Some("orders/{path.id | match('[A-Z0-9]+')}")),
            ("POST", "/v2/payments/refunds/{refund_id}/note", Some("refunds/{path.refund_id}")),
            ("POST", "/v2/checkout/orders", None),
        ],
    );
    let expected =
        OpenApiImportCounts { operations: 6, reads: 1, fenced: 3, doubtful: 0, undecided: 2, unfiltered: 1 };
    assert_eq!(policy.counts, expected, "{}", policy.text);
    assert!(policy.text.contains("`{header.paypal-request-id}`, which `once` can take"), "{}", policy.text);
    assert!(
        policy.text.contains("clients write https://api-m.sandbox.pay.example, https://api-m.pay.example")
    );
}

#[test]
fn required_members_that_name_resources_are_keys() {
    let (policy, plan) = imported(SHOP);
    assert_keys(
        &plan,
        &[
            ("PUT", "/v2/orders/{order_id}", Some("orders/{path.order_id}")),
            ("POST", "/v2/payments", Some("orders/{body:/order_id}")),
            // Both required values name resources, so the key is undecided.
            ("POST", "/v2/moves", None),
            // No required value names a resource.
            ("POST", "/v2/orders", None),
            // `search` has no route. The variable of the next path would take its requests, so that path gets
            // no route either.
            ("POST", "/v2/gift-cards/search", None),
            ("POST", "/v2/gift-cards/{card_id}", None),
            // The filter refuses `search`, so this route cannot take the requests of the next path.
            ("POST", "/v2/points/{number}", Some("points/{path.number | int}")),
            ("POST", "/v2/points/search", None),
            ("POST", "/v2/counts", Some("variations/{body:/counts/*/variation_id}")),
            ("POST", "/v2/notes", Some("orders/{form.order_id}")),
        ],
    );
    let marks = marks(&policy.text).join("\n");
    for part in [
        "the key is that of `/v2/orders/{order_id}`, because `order_id` has the name of its parameter",
        "`POST /v2/moves` has no route, and its requests are refused: several of its values name resources",
        "`POST /v2/gift-cards/{card_id}` has no route, and its requests are refused: a route for it would take requests of \
         `POST /v2/gift-cards/search` as well",
        "the document lets a request come without a body",
        "the document lets a body come in another format",
    ] {
        assert!(marks.contains(part), "{part}\n{}", policy.text);
    }
    assert!(policy.text.contains("`{body:/idempotency_key}`, which `once` can take"), "{}", policy.text);
    let question =
        r#"is the key one of "customers/{body:/customer_id}", "orders/{body:/order_id}", or are several"#;
    assert!(policy.text.contains(&format!("#   fence:    # DECIDE: {question}")), "{}", policy.text);
}

#[test]
fn paths_of_servers_and_several_parameters() {
    let (policy, plan) = imported(PLATFORM);
    assert_keys(
        &plan,
        &[
            ("PATCH", "/bcl/v2/accounts/{accountId}", Some("accounts/{path.accountId | uuid}")),
            (
                "DELETE",
                "/bcl/v2/accounts/{accountId}/sweeps/{sweepId}",
                Some("accounts/{path.accountId | uuid}"),
            ),
            ("POST", "/bcl/v2/accounts/{accountId}:close", Some("accounts/{path.accountId | uuid}")),
            ("POST", "/bcl/v2/transfers/{transferId}/approve", Some("transfers/{path.transferId | int}")),
            // A segment of the path has two parameters.
            ("POST", "/bcl/v2/ranges/{from}-{to}", None),
            // The body is a reference out of the file, so the route has a mark.
            ("PUT", "/bcl/v2/accounts/{accountId}/limits", Some("accounts/{path.accountId | uuid}")),
            // The methods of `/cards/all` are not known, and the variable would take its requests.
            ("PUT", "/bcl/v2/cards/{cardId}", None),
            // The operation has servers of its own.
            ("POST", "/bcl/v2/reports/{reportId}", None),
        ],
    );
    let text = marks(&policy.text).join("\n");
    for part in [
        "the key is that of `{accountId}`; if requests for two `{sweepId}` of it may run at the same time",
        "`/bcl/v2/sweeps/{sweepId}` locks one of `sweeps` alone",
        "`{body:/accountId}` seems to name what `/bcl/v2/accounts/{accountId}` locks",
        "a segment of the path has several parameters",
        "a `$ref` leads out of the file",
        "it has `servers` of its own",
        "the path `/bcl/v2/broken` could not be read",
        "a route for it would take requests of `PUT /bcl/v2/cards/all` as well",
    ] {
        assert!(text.contains(part), "{part}\n{}", policy.text);
    }
}

/// No text of a document can add a field to the policy, or a control character.
#[test]
fn texts_of_document_stay_comments() {
    let document = r#"{"openapi": "3.0.0", "info": {"title": "a\nroutes: []\n\u001b[2J", "version": "1\n#"},
        "servers": [{"url": "https://h/${HOME}\nx: y"}],
        "paths": {"/a\nb: c": {"post": {}}, "/o/{id}": {"post": {"parameters": [
            {"in": "path", "name": "id", "schema": {"type": "string", "pattern": "^[\"a-z$]{1,9}$"}},
            {"in": "header", "name": "Idempotency-Key\n- name: evil", "schema": {"type": "string"}}]}},
            "/env/${x}": {"get": {}}}}"#;
    let imported = import(document).expect("a document");
    let loaded = file::load(&imported.text);
    assert!(loaded.plan.is_some(), "{:#?}\n{}", loaded.diagnostics, imported.text);
    assert!(
        !imported.text.contains('\u{1b}') && !imported.text.contains("\nroutes: []"),
        "{}",
        imported.text
    );
    assert!(loaded.plan.is_some_and(|plan| plan.serving.routes.routes().len() <= 2));
}

/// An interface without any decided operation gets a valid policy, which refuses everything.
#[test]
fn undecided_interface_has_policy() {
    let (policy, plan) = imported("openapi: 3.1.0\npaths: {/a: {post: {requestBody: {$ref: x.yaml}}}}\n");
    assert!(plan.serving.routes.routes().is_empty(), "{}", policy.text);
    assert_eq!((policy.counts.operations, policy.counts.undecided), (1, 1));
}

/// A policy with hundreds of undecided operations is valid.
#[test]
fn policy_of_many_undecided_operations_is_sound() {
    let paths: String = (0..500).map(|number| format!("  /a{number}: {{post: {{}}}}\n")).collect();
    let (policy, plan) = imported(&format!("openapi: 3.1.0\npaths:\n{paths}  /b/{{id}}: {{put: {{}}}}\n"));
    assert_eq!((policy.counts.undecided, plan.serving.routes.routes().len()), (500, 1));
}

/// A document without an operation is refused with a code.
#[test]
fn document_without_operations_is_refused() {
    for text in ["openapi: 3.1.0\npaths: {/a: {}}\n", "openapi: 3.1.0\npaths: {x-a: {post: {}}}\n"] {
        assert_eq!(import(text).expect_err(text).code.number(), "FG0632");
    }
}
