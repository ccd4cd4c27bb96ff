//! Services in Rails, echo, PHP, Flask, Express and Spring read one name out of several sources of a request, each in its own
//! order. The value that they read is the one that is locked, or the request is refused.
//!
//! The readings of ASP.NET Core are those of its documentation, in `readings/sources.jsonl`. With
//! `REWRITE=1` the real programs read each request again, and the file is written anew.
//!
//! The sources are path, query, form, JSON body and cookie. The programs also differ in the parts that they take for
//! a field of a form. XML counts as well. `readings/sources.jsonl` has 170 requests, each with the values that these
//! programs read without a gateway. 600 further requests are generated in each run, and 60,000 among the faults: with
//! paths, suffixes, queries, fields, forms, JSON bodies, lists of each of these, and several sources at once.

mod generated;

use std::{collections::BTreeMap, env, fs, os::unix::fs::symlink, path::Path};

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::{Http1Client, TestRequest},
    foreign_readings::merged::{ForeignParserReadings, is_ambiguous_reading, services},
    gateway::Gateway,
    peers::ProxyProcess,
    site::TestSite,
};
use serde_json::{Value, json};

use super::{
    clients::{node_with_package, persistent_folder, python_with_package},
    middleware::run,
};

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

/// Builds the echo service. Debian installs the library in a folder without the version by which programs import it.
fn echo() -> String {
    let home = persistent_folder("echo");
    let debian = Path::new("/usr/share/gocode");
    let library = home.join("src/github.com/labstack/echo");
    fs::create_dir_all(&library).expect("our own folder");
    if !library.join("v4").exists() {
        symlink(debian.join("src/github.com/labstack/echo"), library.join("v4")).expect("our own folder");
    }
    let program = home.join("echo").display().to_string();
    let home = home.display().to_string();
    let paths = format!("GOPATH={home}:{}", debian.display());
    let go =
        ["GO111MODULE=off", &paths, &format!("GOCACHE={home}/cache"), "go", "build", "-o", &program, "."];
    run(&services().join("echo"), &[&["env"][..], &go].concat());
    program
}

/// Starts the real programs.
async fn start_programs() -> Vec<(&'static str, ProxyProcess)> {
    let file = |name: &str| services().join(name).display().to_string();
    let python = python_with_package("flask", "flask==3.1.3").await;
    // This package has its own folder, because the middleware for Node is tested with a later version.
    let modules = node_with_package("express-4", "express-4@npm:express@4.21.2").await;
    let multer = node_with_package("multer", "multer@2.5.0").await;
    let modules = format!("{modules}:{}", multer.trim_start_matches("NODE_PATH="));
    let echo = echo();
    let spring = spring_class_path();
    let start = |name, command: &dyn Fn(u16) -> Vec<String>| (name, ProxyProcess::service(name, command));
    vec![
        start("rails", &|port| words(["ruby", &file("rails.rb"), &port.to_string()])),
        start("rails-wrapped", &|port| words(["ruby", &file("rails.rb"), &port.to_string(), "wrapped"])),
        start("echo", &|port| words([&echo, &port.to_string()])),
        start("php", &|port| {
            // Error messages in the answer would not be part of the value that PHP has read.
            let quiet = "display_errors=0";
            words(["php", "-n", "-d", quiet, "-S", &format!("127.0.0.1:{port}"), &file("request.php")])
        }),
        start("flask", &|port| words([&python, &file("flask_service.py"), &port.to_string()])),
        start("express", &|port| words([&modules, "node", &file("express.mjs"), &port.to_string()])),
        start("spring", &|port| {
            let quick = "-XX:TieredStopAtLevel=1";
            let source = file("spring/Service.java");
            words(["java", quick, "-XX:+UseSerialGC", "-Xmx256m", "-cp", &spring, &source, &port.to_string()])
        }),
    ]
}

/// The class path of Debian's Spring 4.3, with the server and the JSON parser that it runs with.
fn spring_class_path() -> String {
    let jars = [
        "tomcat9-annotations-api",
        "tomcat9-api",
        "tomcat9-catalina",
        "tomcat9-coyote",
        "tomcat9-jaspic-api",
        "tomcat9-jni",
        "tomcat9-juli",
        "tomcat9-util",
        "tomcat9-util-scan",
        "tomcat9-servlet-api",
        "spring3-core",
        "spring3-beans",
        "spring3-context",
        "spring3-expression",
        "spring3-aop",
        "spring3-web",
        "spring3-web.servlet",
        "commons-logging",
        "jackson-core",
        "jackson-databind",
        "jackson-annotations",
    ];
    jars.map(|jar| format!("/usr/share/java/{jar}.jar")).join(":")
}

/// The value that the program has read of a request, as its answer says, or `!` if it has refused the request.
async fn reading(name: &str, program: &ProxyProcess, ask: &TestRequest) -> String {
    let answer = wait_until(name, ask.send_to(program.address), || name.to_owned()).await.expect("answered");
    match answer.status {
        200 => String::from_utf8(answer.body.to_vec()).expect("UTF-8"),
        // A framework that refuses the request itself reads no value.
        _ => "!".into(),
    }
}

/// One route for each source of the key: path, query, a member of the body, a member of each item of the body, and a
/// field of a form. A header field selects the upstream.
fn routes(name: &str) -> [Value; 5] {
    let route = |kind: &str, methods: &[&str], path: &str, key: &str| {
        json!({
            "name": format!("{kind}-{name}"),
            "upstream": name,
            "match": {"methods": methods, "path": path, "headers": {"x-service": name}},
            "fence": {"key": format!("{name}/{{{key}}}")},
        })
    };
    [
        route("path", &["POST", "PUT", "DELETE"], "/accounts/{id}", "path.id"),
        route("query", &["POST"], "/accounts", "query.id"),
        route("body", &["PUT"], "/accounts", "body:/id"),
        route("list", &["PUT"], "/lists", "body:/*/id"),
        route("form", &["POST"], "/forms", "form.id"),
    ]
}

/// The value that a service reads first out of several sources is the one that is locked, or the request is refused.
#[tokio::test]
async fn locked_value_is_value_services_read() {
    let programs = start_programs().await;
    let mut rows = ForeignParserReadings::load();
    for row in &mut rows {
        let known = row.readings.clone();
        for (name, program) in &programs {
            row.readings.insert((*name).to_owned(), reading(name, program, &row.ask()).await);
        }
        assert!(
            env::var_os("REWRITE").is_some() || row.readings == known,
            "{row:?}: they have read {known:?}"
        );
    }
    if env::var_os("REWRITE").is_some() {
        ForeignParserReadings::store(&rows);
    }
    let merging = |name: &str| {
        rows.iter().any(|row| row.readings.get(name).is_some_and(|read| is_ambiguous_reading(read)))
    };
    let proving: BTreeMap<&str, bool> =
        ["rails", "rails-wrapped", "echo", "php", "flask", "express", "spring", "aspnet"]
            .map(|name| (name, merging(name)))
            .into();
    assert!(proving.values().all(|merges| *merges), "these requests prove nothing: {proving:?}");

    let site = TestSite::fresh().await;
    let mut policy = site.policy("gw-1");
    for (name, program) in &programs {
        let upstream = json!({"endpoints": [format!("http://{}", program.address)], "fencing": "upstream"});
        policy = policy.with(&format!("/upstreams/{name}"), upstream);
        for route in routes(name) {
            policy = policy.with_route(route);
        }
    }
    let gateway = Gateway::start(&policy).await;
    let mut client = Http1Client::connect(gateway.public).await.expect("listens");
    let mut wrong = Vec::new();
    for row in &rows {
        for (name, _) in &programs {
            let answer = client.send(&row.ask().field("x-service", name)).await.expect("answered");
            let read = String::from_utf8_lossy(&answer.body).into_owned();
            let is_ours = answer.field("content-type") == Some("application/problem+json");
            let sound = if is_ours {
                (answer.status, answer.reason().as_str()) == (400, "key-invalid") && !row.passes
            } else {
                answer.status == 200 && !row.is_ambiguous() && !is_ambiguous_reading(&read)
            };
            if !sound {
                wrong.push(format!(
                    "{name}: {} {:?} {:?}: {} {read}",
                    row.request, row.body, row.cookie, answer.status
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} requests:\n{}",
        wrong.len(),
        rows.len() * programs.len(),
        wrong.join("\n")
    );
}
