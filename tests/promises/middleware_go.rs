//! The middleware for Go keeps the contract, and a service with it passes `fencegate verify`.
//!
//! The middleware is built with Debian's compiler. It plays every vector of the contract, in a real server and on a
//! real PostgreSQL. Two instances of a sample on one database pass `fencegate verify`, also by number and while they
//! are killed. The code and the commands on its page are the ones that run here.

use std::sync::LazyLock;

use fencegate_testkit::postgres::{TestDatabase, fresh_database};

use super::{
    clients::persistent_folder,
    middleware::{
        SampleRequests, SampleService, assert_shown, assert_starts, check_both_forms,
        in_time::{MiddlewareMode, assert_keeps_deadlines},
        run, tables, upstream,
    },
};

/// The sample, built once in each run. Go rebuilds only what has changed.
static SAMPLE: LazyLock<String> = LazyLock::new(|| {
    let program = persistent_folder("middleware-go").join("sample").display().to_string();
    go("sample", &["build", "-o", &program, "."], &[]);
    program
});

/// The environment of Go: it fetches nothing from the network, and keeps its cache.
fn environment() -> [String; 3] {
    let cache = format!("GOCACHE={}", persistent_folder("middleware-go").join("cache").display());
    [cache, "GOPROXY=off".to_owned(), "GOFLAGS=-mod=readonly".to_owned()]
}

fn go(folder: &str, words: &[&str], more: &[&str]) {
    let own = environment();
    let own = own.each_ref().map(String::as_str);
    run(&upstream().join("go").join(folder), &[&["env"][..], &own, more, &["go"], words].concat());
}

fn url(database: &TestDatabase) -> String {
    format!("{}?sslmode=disable", database.url())
}

/// The middleware's own tests of the contract pass.
#[test]
fn contract_tests_pass() {
    go(".", &["vet", "."], &[]);
    go(".", &["test", "-count=1", "."], &[]);
}

/// The claims of the middleware and the claims of the recipe use the same watermarks.
#[test]
fn claims_match_recipe_watermarks() {
    let database = format!("DATABASE={}", url(&fresh_database()));
    go("sample", &["test", "-count=1", "."], &[&database]);
}

#[test]
fn readme_starts_sample() {
    assert_shown("go", "go");
    let database = url(&fresh_database());
    let written = "postgres://postgres@127.0.0.1/accounts?sslmode=disable";
    assert_starts("go", &environment().each_ref().map(String::as_str), &[(written, &database)]);
}

#[test]
fn sample_service_passes_verify() {
    check_both_forms(|form| {
        let database = fresh_database();
        database.run(&tables("postgresql", form));
        let program = SAMPLE.clone();
        let url = url(&database);
        let sample = SampleService::start(|port| {
            let words =
                [&program, "-database", &url, "-compare", form, "-listen", &format!("127.0.0.1:{port}")];
            words.map(str::to_owned).into()
        });
        sample.assert_verified(form, SampleRequests::Credits);
    });
}

/// A service with the middleware begins no request after its `Fencing-Not-After`.
#[test]
fn late_request_is_refused() {
    let program = persistent_folder("middleware-go").join("in-time").display().to_string();
    go("sample", &["build", "-o", &program, "./deadline"], &[]);
    assert_keeps_deadlines(|mode, file, port| {
        let listen = format!("127.0.0.1:{port}");
        let on = format!("-on={}", mode == MiddlewareMode::On);
        [&program, "-listen", &listen, "-file", file, &on].map(str::to_owned).into()
    });
}
