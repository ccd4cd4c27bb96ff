//! The shipped lease clients, in five languages, do what their page shows: two requests under a lease, then another
//! holder, and no further request under the first lease.
//!
//! The clients use curl, Python, Java, Go and Node. A request under the earlier lease gets 412. The service receives
//! exactly the requests of the page, with growing tokens.

use std::{collections::BTreeMap, fs, path::PathBuf};

use fencegate_policies::token::FencingToken;
use fencegate_tests::{
    gateway::Gateway,
    leases::{CLIENT, LeaseTokens},
    prometheus::deploy,
    site::TestSite,
};

use super::{
    clients::{self, persistent_folder, python_with_httpx},
    middleware,
};

fn shipped(file: &str) -> String {
    deploy().join("clients").join(file).display().to_string()
}

/// The output of a program, with each token as a letter for the lease and the dispatch number: `A1`, `A2`, `B1`.
fn normalize_tokens(printed: &str) -> Vec<String> {
    let mut leases = BTreeMap::new();
    let mut plain = |word: &str| match FencingToken::parse(word) {
        Ok(token) => {
            // The number of the tenure grows with each lease.
            let next = char::from(b'A' + u8::try_from(leases.len()).expect("few"));
            let lease = *leases.entry(token.number()).or_insert(next);
            format!("{lease}{}", token.dispatch())
        }
        Err(_) => word.to_owned(),
    };
    let mut line = |line: &str| line.split(' ').map(&mut plain).collect::<Vec<_>>().join(" ");
    printed.lines().map(&mut line).collect()
}

/// The output that the README of the clients shows.
fn documented_output() -> Vec<String> {
    let page = fs::read_to_string(shipped("README.md")).expect("shipped");
    let shown: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let shown = normalize_tokens(&shown.join("\n"));
    assert_eq!(shown.len(), 11, "{shown:#?}");
    shown
}

/// Runs a client beside a gateway, and compares its output and the requests at the service with the README.
async fn assert_matches_page(command: &[&str]) {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy = tokens.policy(&site, "gw-1");
    let gateway = Gateway::start(&policy).await;
    let environment = [
        format!("FENCEGATE_URL=http://127.0.0.1:{}", gateway.public.port()),
        format!("FENCEGATE_TOKEN={CLIENT}"),
        "KEY=account/7".to_owned(),
    ];
    let arguments = [environment.each_ref().map(String::as_str).as_slice(), command].concat();
    let output = clients::run("env", &arguments).await;
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(normalize_tokens(&printed), documented_output(), "{printed}");

    let said: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix("call 200 ")).collect();
    let said: Vec<FencingToken> =
        said.into_iter().map(|token| FencingToken::parse(token).expect("a token")).collect();
    let seen: Vec<FencingToken> =
        site.origin.log().requests_for("/pay/7").map(|record| record.expect_token()).collect();
    assert_eq!(seen, said, "the service has seen something else");
    assert!(seen.is_sorted_by(|before, after| before < after), "{seen:?}");
    site.tree().await.wait_locks("nothing is left", |locks| locks.is_empty()).await;
}

#[tokio::test]
async fn curl_client_follows_its_page() {
    assert_matches_page(&[&shipped("curl/lease")]).await;
}

#[tokio::test]
async fn python_client_follows_its_page() {
    let python = python_with_httpx().await;
    assert_matches_page(&["PYTHONDONTWRITEBYTECODE=1", python, &shipped("python/lease.py")]).await;
}

#[tokio::test]
async fn java_client_follows_its_page() {
    assert_matches_page(&["java", "-XX:TieredStopAtLevel=1", "-Xmx128m", &shipped("java/Lease.java")]).await;
}

#[tokio::test]
async fn go_client_follows_its_page() {
    // The build shares the compiled standard library with the middleware for Go.
    let cache = format!("GOCACHE={}", persistent_folder("middleware-go").join("cache").display());
    let program = persistent_folder("lease-client-go").join("lease").display().to_string();
    let build = ["env", &cache, "GOPROXY=off", "GOFLAGS=-mod=readonly", "go", "build", "-o", &program, "."];
    middleware::run(&PathBuf::from(shipped("go")), &build);
    assert_matches_page(&[&program]).await;
}

#[tokio::test]
async fn node_client_follows_its_page() {
    assert_matches_page(&["node", &shipped("node/lease.mjs")]).await;
}
