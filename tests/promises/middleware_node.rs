//! The middleware for Node keeps the contract, and a service with it, on Express or on plain HTTP, passes `fencegate
//! verify`.
//!
//! The middleware plays every vector of the contract, in a real server and on a real PostgreSQL. Two instances of a
//! sample on one database pass `fencegate verify`, also by number and while they are killed. The code and the
//! commands on its page are the ones that run here.

use fencegate_testkit::postgres::fresh_database;
use tokio::sync::OnceCell;

use super::{
    clients::node_with_package,
    middleware::{
        SampleRequests, SampleService, assert_shown, assert_starts, check_both_forms,
        in_time::{MiddlewareMode, assert_keeps_deadlines},
        run, tables, upstream,
    },
};

/// The variable by which Node finds the framework and the database driver.
async fn node_path_variable() -> &'static str {
    static MADE: OnceCell<String> = OnceCell::const_new();
    let made = MADE.get_or_init(async || {
        let express = node_with_package("express", "express@5.3.0").await;
        let driver = node_with_package("pg", "pg@8.23.1").await;
        format!("{express}:{}", driver.trim_start_matches("NODE_PATH="))
    });
    made.await
}

/// The middleware keeps the contract, and its claims use the watermarks of the recipe.
#[tokio::test]
async fn contract_and_recipe_claims_hold() {
    let database = format!("DATABASE={}", fresh_database().url());
    run(
        &upstream().join("node"),
        &["env", node_path_variable().await, &database, "node", "--test", "tests/"],
    );
}

#[tokio::test]
async fn readme_starts_sample() {
    assert_shown("node", "js");
    let database = fresh_database().url();
    let written = "postgres://postgres@127.0.0.1/accounts";
    assert_starts("node", &[node_path_variable().await], &[(written, &database)]);
}

#[tokio::test]
async fn sample_service_passes_verify() {
    let modules = node_path_variable().await;
    let service = upstream().join("node/sample/service.js").display().to_string();
    check_both_forms(|form| {
        let face = if form == "token" { "express" } else { "http" };
        let database = fresh_database();
        database.run(&tables("postgresql", form));
        let url = database.url();
        let sample = SampleService::start(|port| {
            let port = port.to_string();
            let options = ["--database", &url, "--listen", &port, "--face", face, "--compare", form];
            [&["env", modules, "node", &service][..], &options]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect()
        });
        sample.assert_verified(form, SampleRequests::Credits);
    });
}

/// A service with the middleware begins no request after its `Fencing-Not-After`.
#[test]
fn late_request_is_refused() {
    let service = upstream().join("node/sample/deadline.js").display().to_string();
    assert_keeps_deadlines(|mode, file, port| {
        let port = port.to_string();
        let mut words = vec!["node", &service, "--file", file, "--listen", &port];
        if mode == MiddlewareMode::Off {
            words.push("--off");
        }
        words.into_iter().map(str::to_owned).collect()
    });
}
