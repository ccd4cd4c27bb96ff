//! The cost of many routes: to find one among ten thousand, to serve requests beside them, and to reload a file with
//! them.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use fencegate_policies::{file, path::CanonicalPath, plan::RouteTable};
use fencegate_testkit::zookeeper::PrivateZooKeeper;
use serde_json::{Value, json};

use crate::{
    gateway::{BenchGateway, UpstreamKind, policy},
    locks::ZOOKEEPER,
    nginx::Nginx,
    report::{BenchRound, BenchRow, RatioGoal},
    result::BenchResult,
    run::BenchRun,
    wrk::WrkLoad,
};

const FEW: usize = 10;
const MANY: usize = 10_000;
const WARM_UP: Duration = Duration::from_secs(2);
const UNFENCED: WrkLoad =
    WrkLoad { method: "GET", prefix: "/unfenced/", keys: 1000, threads: 2, clients: 64 };

pub(crate) fn measure(run: &BenchRun) -> BenchResult<Vec<BenchRow>> {
    let finding =
        [("routes-find-100", 100, 5.0), ("routes-find-1000", 1000, 10.0), ("routes-find-10000", MANY, 20.0)];
    let mut benches = Vec::new();
    let few = table(FEW)?;
    for (name, routes, most) in finding {
        let many = table(routes)?;
        let rounds = (0..run.rounds).map(|_| BenchRound {
            ours: measure_lookup_nanos(&many, routes),
            theirs: measure_lookup_nanos(&few, FEW),
        });
        // The goals are below the ratio of the numbers of routes, which would be the ratio of times if routes were
        // compared one by one.
        let goal = RatioGoal::AtMost(most);
        benches.push(BenchRow {
            name,
            peer: "10 routes",
            unit: "ns, unoptimised",
            goal,
            rounds: rounds.collect(),
        });
    }
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper-routes"), ZOOKEEPER)?;
    let service = Nginx::service(run)?;
    let file = |name: &str, routes: usize, key: &str| {
        let mut file = policy(name, zookeeper.address(), service.address, UpstreamKind::Service);
        file["routes"].as_array_mut().expect("a list").extend((0..routes).map(|number| route(number, key)));
        file
    };
    let mut served = Vec::new();
    let mut reloaded = Vec::new();
    for round in 1..=run.rounds {
        let few = measure_serving(run, &file(&format!("few-{round}"), FEW, "a"), |_| Ok(()))?.0;
        let name = format!("many-{round}");
        let (many, took) = measure_serving(run, &file(&name, MANY, "a"), |gateway| {
            gateway.rewrite_policy(&file(&name, MANY, "b").to_string())?;
            Ok(())
        })?;
        eprintln!(
            "round {round}: {many:.0} requests/s beside {MANY} routes, {few:.0} beside {FEW}; reload {took:?}"
        );
        served.push(BenchRound { ours: many, theirs: few });
        reloaded.push(BenchRound { ours: took.as_secs_f64(), theirs: 1.0 });
    }
    benches.push(BenchRow {
        name: "routes-served-10000",
        peer: "10 routes",
        unit: "requests/s",
        goal: RatioGoal::AtLeast(0.9),
        rounds: served,
    });
    benches.push(BenchRow {
        name: "routes-reload-10000",
        peer: "one second",
        unit: "s",
        goal: RatioGoal::AtMost(1.0),
        rounds: reloaded,
    });
    Ok(benches)
}

/// Returns the requests per second of a gateway with the policy `file`, and the time that `change` takes.
fn measure_serving(
    run: &BenchRun,
    file: &Value,
    change: impl FnOnce(&BenchGateway) -> BenchResult<()>,
) -> BenchResult<(f64, Duration)> {
    let gateway = BenchGateway::start_with(run, file)?;
    UNFENCED.run(run, gateway.public, WARM_UP)?;
    let per_second = UNFENCED.run(run, gateway.public, run.window)?.per_second;
    let begun = Instant::now();
    change(&gateway)?;
    let took = begun.elapsed();
    gateway.stop()?;
    Ok((per_second, took))
}

/// A route of one of the kinds in turn, with a path of its own.
fn route(number: usize, key: &str) -> Value {
    let (path, fence) = match number % 3 {
        0 => (format!("/t{number}/{{rest...}}"), json!("none")),
        1 => (format!("/{{tenant}}/s{number}/{{id}}"), json!({"key": format!("{key}{number}/{{path.id}}")})),
        _ => (format!("/t{number}/orders/{{id}}"), json!({"key": format!("{key}{number}/{{path.id}}")})),
    };
    let methods = if fence == "none" { json!(["GET"]) } else { json!(["POST"]) };
    json!({
        "name": format!("route-{number}"),
        "upstream": "service",
        "match": {"methods": methods, "path": path},
        "fence": fence,
    })
}

fn table(routes: usize) -> BenchResult<RouteTable> {
    let nobody = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let mut written = policy("table", nobody, nobody, UpstreamKind::Service);
    written["routes"] = (0..routes).map(|number| route(number, "a")).collect();
    let loaded = file::load(&written.to_string());
    Ok(loaded.plan.ok_or_else(|| format!("{:?}", loaded.diagnostics))?.serving.routes)
}

/// The average time of one lookup, over all kinds of routes and all positions in the file.
fn measure_lookup_nanos(table: &RouteTable, routes: usize) -> f64 {
    const LOOKUPS: usize = 30_000;
    let paths: Vec<(&str, CanonicalPath)> = (0..routes.min(1000))
        .map(|number| number * routes / routes.min(1000))
        .map(|number| match number % 3 {
            0 => ("GET", format!("/t{number}/a/b")),
            1 => ("POST", format!("/acme/s{number}/7")),
            _ => ("POST", format!("/t{number}/orders/7")),
        })
        .map(|(method, path)| (method, CanonicalPath::parse(&path)))
        .collect();
    let begun = Instant::now();
    for (method, path) in paths.iter().cycle().take(LOOKUPS) {
        let found = table.find(method, path, &()).expect("no conditions");
        assert!(black_box(found).is_some(), "{method} {path:?}");
    }
    begun.elapsed().as_nanos() as f64 / LOOKUPS as f64
}
