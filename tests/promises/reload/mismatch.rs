//! Gateways that lock other keys than this gateway are counted and named. The sessions of one gateway are never
//! counted as other gateways.

use std::time::Duration;

use fencegate_tests::{gateway::Gateway, site::TestSite};
use serde_json::json;

/// The gauge of gateways that lock other keys.
const UNLIKE: &str = "fencegate_config_mismatch";

/// A gateway of several sessions that changes its keys is not taken for another gateway.
///
/// The sessions publish the new plan with their next heartbeats. Until then the sessions of one gateway differ among
/// themselves.
#[tokio::test]
async fn own_sessions_are_no_mismatch() {
    let site = TestSite::fresh().await;
    let policy = |key: &str| {
        site.policy("gw-1")
            // There are many sessions, so that their heartbeats come at different times.
            .with("/zookeeper/sessions", 48)
            .with("/zookeeper/session_timeout", "12s")
            .with("/routes/0/fence/key", format!("{key}/{{path.account}}"))
    };
    let gateway = Gateway::start(&policy("account")).await;
    for key in ["konto", "account", "konto"] {
        gateway.rewrite(&policy(key));
        let (code, report) = gateway.reload(&[]).await;
        assert_eq!((code, &report["result"]), (Some(0), &json!("applied")), "{report}");
        // Within a second some session checks the other gateways.
        tokio::time::sleep(Duration::from_millis(1200)).await;
        assert!(!gateway.log().contains("FG0515"), "it met itself: {}", gateway.log());
    }
}

/// Gateways that lock other keys are counted and named until they agree.
#[tokio::test]
async fn mismatched_gateways_counted_until_agreement() {
    let site = TestSite::fresh().await;
    let (first, third) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-3"));
    let other = site.policy("gw-2").with("/routes/0/fence/key", "konto/{path.account}");
    let second = Gateway::start(&other).await;
    let named = first.wait_line("who differs", |line| line.message().ends_with("lock other keys")).await;
    assert_eq!((named.field("code"), named.field("gateways")), ("FG0515", "gw-2"));
    first.wait_gauge(UNLIKE, 1.0).await;
    third.wait_gauge(UNLIKE, 1.0).await;
    // This gateway has other keys than both others.
    second.wait_gauge(UNLIKE, 2.0).await;
    second.rewrite(&site.policy("gw-2"));
    let (code, report) = second.reload(&[]).await;
    assert_eq!((code, &report["result"]), (Some(0), &json!("applied")), "{report}");
    for gateway in [&first, &second, &third] {
        gateway.wait_gauge(UNLIKE, 0.0).await;
    }
    first.wait_line("that all agree", |line| line.message().ends_with("lock the same keys")).await;
}
