//! One resource has one key, however an API writes it into paths, and however a database compares it.

use fencegate_tests::{
    client::{ClientResponse, TestRequest},
    gateway::Gateway,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

fn route(name: &str, method: &str, path: &str, key: &str) -> Value {
    json!({
        "name": name, "upstream": "ledger",
        "match": {"methods": [method], "path": path},
        "fence": {"key": key, "wait": "5s"},
    })
}

fn with_routes(site: &TestSite, routes: impl IntoIterator<Item = Value>) -> TestPolicy {
    let policy = site.policy("gw-1").without_route("pay").without_route("read");
    routes.into_iter().fold(policy, TestPolicy::with_route)
}

/// Reported as go-restful#394, labstack/echo#2756 and protoc-gen-connect-openapi#29 (custom methods of AIP-136), and
/// asked for by the APIs of Shopify, OData and Rails: a variable that is a part of a segment could not be written, or
/// included the action. This test covers two paths of one resource: a request by one path waits while a request by the
/// other has the lock.
#[tokio::test]
async fn actions_of_one_resource_take_turns() {
    let site = TestSite::fresh().await;
    let styles = [
        ("DELETE", "/a/{id}", "/a/42", "/a/{id}:cancel", "/a/42:cancel"),
        ("PUT", "/b/{id}.json", "/b/42.json", "/b/{id}/cancel.json", "/b/42/cancel.json"),
        ("PATCH", "/C({id})", "/C(42)", "/C({id})/Cancel", "/C(42)/Cancel"),
        ("PUT", "/d/{id}{.format?}", "/d/42", "/d/{id}/cancel", "/d/42/cancel"),
        ("PUT", "/e/order-{id}", "/e/order-42", "/e/order-{id}:cancel", "/e/order-42:cancel"),
    ];
    let routes = styles.iter().enumerate().flat_map(|(number, (method, whole, _, action, _))| {
        let key = format!("r{number}/{{path.id}}");
        [
            route(&format!("action-{number}"), "POST", action, &key),
            route(&format!("whole-{number}"), method, whole, &key),
        ]
    });
    let gateway = Gateway::start(&with_routes(&site, routes)).await;
    for (number, (method, _, whole, _, action)) in styles.into_iter().enumerate() {
        let holder = site.origin.hold_request(&gateway, TestRequest::with_method(method, whole)).await;
        assert_eq!(holder.record.key(), Some(&*format!("r{number}/42")), "{whole}");
        let act = || TestRequest::post(action).field("prefer", "wait=0");
        let locked = gateway.send(&act()).await;
        assert_eq!((locked.status, locked.reason().as_str()), (423, "locked"), "{action}: {locked:?}");
        assert_eq!(holder.finish().await.status, 200);
        assert_eq!(gateway.send(&act()).await.status, 200, "{action}");
        let acted = site.origin.wait_for_request(action, 1).await;
        assert_eq!(acted.key(), Some(&*format!("r{number}/42")), "{action}");
    }
}

async fn put(gateway: &Gateway, path: &str) -> ClientResponse {
    gateway.send(&TestRequest::with_method("PUT", path)).await
}

/// Reported as rails/rails#18507 and #54000, yiisoft/yii2#18131 and #8170, 3scale/porta#4384: a framework or a database
/// takes several texts for one row. This test covers spellings of one value: each has the one key of the resource, or
/// is refused before a lock.
#[tokio::test]
async fn spellings_of_one_row_have_one_key() {
    const UUID: &str = "0b5e2b9c-2f0b-4c9e-8d3a-1f6f0a7c9e55";
    let site = TestSite::fresh().await;
    let keyed = [
        (
            "int",
            "int",
            "42",
            &["042", "00042", "+42", "42.0", "42x", "42-my-order", "4_2", "42%20", "0x2a"][..],
        ),
        (
            "uuid",
            "uuid",
            UUID,
            &[
                "0B5E2B9C-2F0B-4C9E-8D3A-1F6F0A7C9E55",
                "0b5e2b9c2f0b4c9e8d3a1f6f0a7c9e55",
                "%7B0b5e2b9c-2f0b-4c9e-8d3a-1f6f0a7c9e55%7D",
                "urn:uuid:0b5e2b9c-2f0b-4c9e-8d3a-1f6f0a7c9e55",
                "0b5e2b9c-2f0b-4c9e-8d3a-1f6f0a7c9e5",
            ],
        ),
        (
            "word",
            "match('[a-z0-9-]{1,40}')",
            "blue-shirt",
            &["Blue-Shirt", "blue-shirt%20", "blue-shirt.json", "bl%C3%BCe-shirt"],
        ),
        ("name", "trim | casefold", "caf%C3%A9", &["CAF%C3%89", "Cafe%CC%81", "%20caf%C3%A9"]),
        ("sku", "without('.json', '.xml')", "a7", &["a7.json", "a7.JSON", "a7.xml"]),
    ];
    let routes = keyed.iter().map(|(name, filter, _, _)| {
        route(name, "PUT", &format!("/{name}/{{id}}"), &format!("{name}/{{path.id | {filter}}}"))
    });
    let gateway = Gateway::start(&with_routes(&site, routes)).await;
    for (name, _, plain, others) in keyed {
        let key = format!("{name}/{plain}");
        assert_eq!(put(&gateway, &format!("/{name}/{plain}")).await.status, 200, "{plain}");
        let first = site.origin.wait_for_request(&format!("/{name}/{plain}"), 1).await;
        assert_eq!(first.key(), Some(key.as_str()), "{plain}");
        let mut passed = 0;
        for other in others {
            let path = format!("/{name}/{other}");
            let answer = put(&gateway, &path).await;
            match answer.status {
                200 => {
                    let seen = site.origin.wait_for_request(&path, 1).await;
                    assert_eq!(seen.key(), Some(key.as_str()), "{path}");
                    passed += 1;
                }
                400 => {
                    assert!(
                        ["key-invalid", "ambiguous-path"].contains(&answer.reason().as_str()),
                        "{path}: {answer:?}"
                    );
                    assert_eq!(site.origin.count(&path), 0, "{path}");
                }
                _ => panic!("{path}: {answer:?}"),
            }
        }
        let canonicalizes = name != "word";
        assert_eq!(passed > 0, canonicalizes, "{name}: {passed} of {}", others.len());
    }
}
