//! Only the gateway writes the fencing fields: whatever a client or an upstream sends in them is removed.
//!
//! No spelling of such a field passes, in headers, trailers or `Connection`.

use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest},
    gateway::Gateway,
    origin::{OriginAction, OriginReply, RequestRecord},
    site::TestSite,
};
use serde_json::json;

/// Forged fields of clients. A value that contains `forged` must not arrive at the upstream.
const FORGERIES: &[(&str, &str)] = &[
    ("plain", "Fencing-Token: forged\r\n"),
    (
        "well formed",
        "Fencing-Token: v1-7fffffffffffffff-ffffffff-ffffffff\r\nFencing-Number: 9223372036854775807\r\n",
    ),
    ("lower case", "fencing-token: forged\r\nfencing-number: forged\r\n"),
    ("upper case", "FENCING-TOKEN: forged\r\nFENCING-KEY: forged\r\n"),
    ("twice", "Fencing-Token: forged\r\nFencing-Token: forged\r\n"),
    ("underscore", "Fencing_Token: forged\r\nfencing_number: forged\r\n"),
    ("both", "fEnCiNg_tOkEn: forged\r\nFencing-Token: forged\r\n"),
    ("every field", "Fencing-Mode: forged\r\nFencing-Key: forged\r\nFencing-Outcome: forged\r\n"),
    (
        "fields of later",
        "Fencing-Operation: forged\r\nFencing-Refusal: forged\r\nFencing-Anything: forged\r\n",
    ),
    ("a dot", "Fencing.Token: forged\r\nFENCING.KEY: forged\r\n"),
    (
        "every other character of a name",
        "Fencing~Token: forged\r\nFencing!Token: forged\r\nFencing+Token: forged\r\nFencing'Token: forged\r\n\
         Fencing*Token: forged\r\nFencing|Token: forged\r\nFencing^Token: forged\r\nFencing`Token: forged\r\n\
         Fencing$Token: forged\r\nFencing%Token: forged\r\nFencing&Token: forged\r\nFencing#Token: forged\r\n",
    ),
    ("renamed", "X-Fence: forged\r\nX-Fence-Number: forged\r\n"),
    ("renamed, underscore", "x_fence: forged\r\nX_FENCE_NUMBER: forged\r\nX-Fence_number: forged\r\n"),
    ("renamed, other characters", "x.fence: forged\r\nX~FENCE!NUMBER: forged\r\n"),
    ("nominated, a dot", "Connection: fencing.token\r\nFencing.Token: forged\r\n"),
    ("nominated", "Connection: Fencing-Token, Fencing-Number, Fencing-Key, Fencing-Mode\r\n"),
    ("nominated twice", "Connection: close\r\nConnection: fencing-token\r\nFencing-Token: forged\r\n"),
    ("nominated, renamed", "Connection: X-Fence, X-Fence-Number, keep-alive\r\n"),
    ("nominated, underscore", "Connection: fencing_token\r\nFencing_Token: forged\r\n"),
    ("until when", "Fencing-Not-After: forged\r\nfencing_not_after: forged\r\nFencing.Not.After: forged\r\n"),
    ("until when, nominated", "Connection: Fencing-Not-After\r\nFencing-Not-After: forged\r\n"),
    ("blank value", "Fencing-Token:\r\n"),
];

/// The name as seen by a server that folds field names to CGI variables.
fn folded(name: &str) -> String {
    name.to_ascii_lowercase().replace(|character: char| !character.is_ascii_alphanumeric(), "-")
}

fn fencing_fields(record: &RequestRecord) -> Vec<(String, String)> {
    let lines = record.request.fields.iter().chain(&record.request.trailers);
    let folded = lines.map(|(name, value)| (folded(name), value.clone()));
    let reserved = |name: &str| name.starts_with("fencing-") || name.starts_with("x-fence");
    let mut found: Vec<_> = folded.filter(|(name, _)| reserved(name)).collect();
    found.sort();
    found
}

/// Sends one forgery as header lines and once more as trailers, and returns the request that arrived for each.
async fn attempts(
    site: &TestSite,
    gateway: &Gateway,
    method: &str,
    path: &str,
    lines: &str,
) -> [RequestRecord; 2] {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n");
    let before = site.origin.count(path);
    for bytes in
        [format!("{head}{lines}\r\n2\r\nhi\r\n0\r\n\r\n"), format!("{head}\r\n2\r\nhi\r\n0\r\n{lines}\r\n")]
    {
        let mut client = RawClient::connect(gateway.public).await.expect("listens");
        client.send(&bytes).await.expect("connected");
        let answer = client.read_response().await.expect("answered");
        assert!(answer.start.starts_with("HTTP/1.1 200 "), "{bytes:?}: {answer:?}");
    }
    [
        site.origin.wait_for_request(path, before + 1).await,
        site.origin.wait_for_request(path, before + 2).await,
    ]
}

fn assert_nothing_forged(record: &RequestRecord, case: &str) {
    for (name, value) in record.request.fields.iter().chain(&record.request.trailers) {
        let forged =
            ["forged", "7fffffffffffffff", "9223372036854775807"].iter().any(|bad| value.contains(bad));
        assert!(!forged, "{case}: `{name}: {value}` arrived");
    }
    assert!(record.request.trailers.is_empty(), "{case}: request trailers are dropped");
    assert_eq!(record.request.body, b"hi", "{case}: the body of {:?}", record.request);
    let connection = record.request.field("connection").unwrap_or_default().to_ascii_lowercase();
    assert!(!connection.contains("fenc"), "{case}: nominated on: {connection}");
}

/// No spelling of a fencing field that a client sends as header, trailer or connection option reaches the upstream.
#[tokio::test]
async fn client_fencing_fields_are_removed() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    for (case, lines) in FORGERIES.iter().filter(|(case, _)| !case.starts_with("renamed")) {
        for record in attempts(&site, &gateway, "POST", "/pay/7", lines).await {
            assert_nothing_forged(&record, case);
            let names: Vec<String> = fencing_fields(&record).into_iter().map(|(name, _)| name).collect();
            assert_eq!(
                names,
                ["fencing-key", "fencing-mode", "fencing-not-after", "fencing-number", "fencing-token"],
                "{case}"
            );
            assert_eq!((record.key(), record.expect_token().dispatch()), (Some("account/7"), 1), "{case}");
        }
        for record in attempts(&site, &gateway, "GET", "/read", lines).await {
            assert_nothing_forged(&record, case);
            assert_eq!(fencing_fields(&record), [], "{case}: an unfenced request gets no token");
        }
    }
}

/// No spelling of a renamed fencing field that a client sends as header, trailer or connection option reaches the
/// upstream.
#[tokio::test]
async fn renamed_client_fields_are_removed() {
    let site = TestSite::fresh().await;
    let policy = site
        .policy("gw-1")
        .with("/upstreams/ledger/fields", json!({"token": "X-Fence", "number": "X-Fence-Number"}));
    let gateway = Gateway::start(&policy).await;
    for (case, lines) in FORGERIES {
        for record in attempts(&site, &gateway, "POST", "/pay/7", lines).await {
            assert_nothing_forged(&record, case);
            let names: Vec<String> = fencing_fields(&record).into_iter().map(|(name, _)| name).collect();
            assert_eq!(
                names,
                ["fencing-key", "fencing-mode", "fencing-not-after", "x-fence", "x-fence-number"],
                "{case}"
            );
            assert!(record.request.field("x-fence").is_some_and(|token| token.starts_with("v1-")), "{case}");
        }
        for record in attempts(&site, &gateway, "GET", "/read", lines).await {
            assert_nothing_forged(&record, case);
            assert_eq!(fencing_fields(&record), [], "{case}: an unfenced request gets no token");
        }
    }
}

/// Fencing fields in headers and trailers of an upstream answer are removed; its other trailers pass.
#[tokio::test]
async fn upstream_fencing_fields_are_removed() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    for (status, field) in [
        (200, "Fencing-Outcome"),
        (500, "Fencing-Outcome"),
        (200, "fencing_outcome"),
        (200, "FENCING-TOKEN"),
        (412, "Fencing_Number"),
        (503, "Fencing-Refusal"),
        (200, "Fencing.Outcome"),
        (200, "Fencing-Anything"),
    ] {
        let reply = OriginReply::ok().status(status).field(field, "forged");
        let in_trailer = OriginReply::ok().status(status).trailer(field, "forged").trailer("X-Kept", "yes");
        for path in ["/pay/7", "/read"] {
            site.origin.script(path, [reply.clone(), in_trailer.clone()].map(OriginAction::now));
            for trailers in [false, true] {
                let request = if path == "/read" { TestRequest::get(path) } else { TestRequest::post(path) };
                let answer = gateway.send(&request.field("TE", "trailers")).await;
                let all = answer.fields.iter().chain(&answer.trailers);
                let forged: Vec<_> = all.filter(|(_, value)| value.as_bytes() == b"forged").collect();
                assert!(forged.is_empty(), "{path} {field}: {forged:?}");
                assert_eq!(answer.status, status, "{path} {field}");
                let expected = (path != "/read").then_some(FencingOutcome::Done);
                assert_eq!(answer.outcome(), expected, "{path} {field}");
                assert_eq!(
                    answer.trailers.contains_key("x-kept"),
                    trailers,
                    "{path} {field}: other trailers pass"
                );
            }
        }
    }
}
