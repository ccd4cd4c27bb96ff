//! Tests who is admitted, and what is logged about a request.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use axum::{Router, body::Body, middleware, routing::post};
use fencegate_policies::host::HostPattern;
use tower::ServiceExt as _;

use super::*;

/// The captured log.
#[derive(Clone, Default)]
struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn admin_auth() -> AdminAuth {
    let hosts = vec![HostPattern::parse("admin.example").expect("a name")];
    let admin = plan::AdminListenerSettings {
        address: ([127, 0, 0, 1], 9901).into(),
        hosts,
        bearer: None,
        tls: None,
    };
    AdminAuth::new(&admin).expect("no token is asked for")
}

/// The `Host` of an admin request must be an IP address, `localhost` or a configured name: any other name can be
/// rebound to an address of this machine.
#[test]
fn foreign_host_names_are_refused() {
    for (host, meant) in [
        ("127.0.0.1:9901", true),
        ("127.0.0.1", true),
        ("[::1]:9901", true),
        ("localhost:9901", true),
        ("LOCALHOST", true),
        ("Admin.Example:1", true),
        ("10.1.2.3:9901", true),
        ("evil.example", false),
        ("localhost.evil.example", false),
        ("127.0.0.1.evil.example", false),
        ("[::1", false),
        ("::1.evil", false),
        ("", false),
    ] {
        assert_eq!(admin_auth().accepts_host(host), meant, "{host}");
    }
}

/// A change is accepted from a page of this listener or from a client that is no browser page, and from no other
/// origin.
#[test]
fn changes_require_same_origin_or_none() {
    let from = |fields: &[(&'static str, &str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().expect("a value"));
        }
        is_same_origin(&headers, "127.0.0.1:9901", false)
    };
    assert!(from(&[]));
    assert!(from(&[("origin", "http://127.0.0.1:9901"), ("sec-fetch-site", "same-origin")]));
    for fields in [
        &[("origin", "http://evil.example")][..],
        &[("origin", "null")],
        &[("origin", "http://127.0.0.1:9902")],
        &[("origin", "https://127.0.0.1:9901")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "http://127.0.0.1:9901"), ("sec-fetch-site", "cross-site")],
        &[("origin", "http://127.0.0.1:9901"), ("origin", "http://evil.example")],
    ] {
        assert!(!from(fields), "{fields:?}");
    }
}

/// The action of an audit line contains only known words of the path: keys and references are masked, and it is
/// short.
#[test]
fn audit_action_masks_names_in_path() {
    for (path, expected) in [
        ("/api/v1/reload", "reload"),
        ("/api/v1/backup", "backup"),
        ("/api/v1/locks/account%2F7/break", "locks.*.break"),
        ("/api/v1/operations/abc/resolve", "operations.*.resolve"),
        ("/api/v1/keys/account/7", "keys.*.*"),
        ("/locks/account%2F7/break", "locks.*.break"),
        // A path without a handler is logged, too.
        ("/api/v1/locks/account%2F7", "locks.*"),
        ("/api/v1/locks/account/7/break", "locks.*.*.break"),
        ("/locks/account%2F7/", "locks.*"),
        ("/account%2F7", "*"),
        ("/api/v1account%2F7", "*.*"),
        ("/api/v1/locks/drain", "locks.*"),
        ("/api/v1/locks/account/break/7", "locks.*.*.*"),
        ("/", ""),
    ] {
        assert_eq!(action_name(path), expected, "{path}");
    }
    assert!(action_name(&"/account".repeat(1000)).len() < 100);
}

async fn failing_handler() -> StatusCode {
    panic!("on purpose")
}

/// A request whose handler ends with an error leaves an audit line, too.
#[tokio::test(flavor = "current_thread")]
async fn failed_request_is_audited() {
    let lines = CapturedLog::default();
    let written = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || written.clone()).finish();
    let _listening = tracing::subscriber::set_default(log);
    let routes = Router::new()
        .route("/api/v1/drain", post(failing_handler))
        .layer(middleware::from_fn_with_state(admin_auth(), authenticate));
    let mut incoming = Request::post("/api/v1/drain").header(HOST, "127.0.0.1").body(Body::empty());
    let caller = AdminConnectionInfo { address: [127, 0, 0, 1].into(), certificate: None, secured: false };
    incoming.as_mut().expect("a request").extensions_mut().insert(caller);
    let answer = routes.oneshot(incoming.expect("a request")).await.unwrap_or_else(|never| match never {});
    assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
    let lines = String::from_utf8(lines.0.lock().expect("no panic").clone()).expect("text");
    assert!(lines.contains("audit") && lines.contains("asked=\"drain\""), "{lines}");
}

/// The token is read from `Bearer` or from the password of `Basic`; all other forms give none.
#[test]
fn token_is_bearer_or_basic_password() {
    let shown = |value: &str| {
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, value.parse().expect("a value"));
        presented_token(&headers)
    };
    assert_eq!(shown("Bearer secret").as_deref(), Some(&b"secret"[..]));
    assert_eq!(
        shown(&format!("basic {}", BASE64_STANDARD.encode("me:se:cret"))).as_deref(),
        Some(&b"se:cret"[..])
    );
    for value in ["Bearer", "Digest x", "Basic !", &format!("Basic {}", BASE64_STANDARD.encode("none"))] {
        assert_eq!(shown(value), None, "{value}");
    }
}
