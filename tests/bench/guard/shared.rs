//! A guard whose store is a PostgreSQL, compared with the same guard with a file, and with one `UPDATE` per request
//! on the same database server.

use std::{fs, net::SocketAddr, time::Duration};

use fencegate_testkit::{
    child::ChildProcess,
    postgres::{PostgresServer, TestDatabase},
};
use serde_json::json;

use super::released::{BenchGuard, NEW, WARM_UP};
use crate::{
    report::{BenchRound, BenchRow, RatioGoal},
    result::BenchResult,
    run::BenchRun,
};

/// The statement of a service that compares tokens itself: the watermark is raised durably with each request.
const ONE: &str = "\\set key random(1, :keys)\nUPDATE marks SET token = token + 1 WHERE key = :key;\n";

pub(super) fn measure(run: &BenchRun, service: SocketAddr, ensemble: &str) -> BenchResult<Vec<BenchRow>> {
    let server = PostgresServer::start(&[]);
    let mut by_update = vec![];
    let mut by_file = vec![];
    for round in 1..=run.rounds {
        let database = server.fresh_database();
        let with = || measure_new_tenures(run, &format!("shared-{round}"), &database, service, ensemble);
        let (ours, theirs) = if round % 2 == 1 {
            (with()?, measure_row_updates(run, &database)?)
        } else {
            let theirs = measure_row_updates(run, &database)?;
            (with()?, theirs)
        };
        let guard = BenchGuard::start(run, &format!("file-{round}"), service, ensemble, None)?;
        let file = NEW.run(run, guard.address()?, run.window)?.per_second;
        guard.stop()?;
        run.print(&format!(
            "round {round}: {ours:.0} new tenures/s in a database, {file:.0} in a file, {theirs:.0} updates/s"
        ));
        by_update.push(BenchRound { ours, theirs });
        by_file.push(BenchRound { ours, theirs: file });
    }
    let bench = |name, peer, goal, rounds| BenchRow { name, peer, unit: "tenures/s", goal, rounds };
    Ok(vec![
        bench("guard-postgres", "one UPDATE per request", RatioGoal::AtLeast(0.5), by_update),
        bench("guard-postgres-file", "the same guard with a file", RatioGoal::None, by_file),
    ])
}

/// The number of new tenures that a guard admits per second. Each takes two queries of the store.
fn measure_new_tenures(
    run: &BenchRun,
    name: &str,
    database: &TestDatabase,
    service: SocketAddr,
    ensemble: &str,
) -> BenchResult<f64> {
    let file = run.folder().join(format!("{name}.url"));
    fs::write(&file, database.url())?;
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let store = json!({"postgres": {"url_file": file.display().to_string()}});
    let guard = BenchGuard::start(run, name, service, ensemble, Some(store))?;
    // Without a warm-up: its tokens would be newer than those of the measurement.
    let rate = NEW.run(run, guard.address()?, run.window)?.per_second;
    guard.stop()?;
    Ok(rate)
}

/// The number of updates per second, with as many sessions as the guard has clients, and as many keys.
fn measure_row_updates(run: &BenchRun, database: &TestDatabase) -> BenchResult<f64> {
    let keys = NEW.keys;
    database.run(&format!(
        "CREATE TABLE IF NOT EXISTS marks (key int PRIMARY KEY, token bigint NOT NULL);
         INSERT INTO marks SELECT generate_series(1, {keys}), 0 ON CONFLICT DO NOTHING"
    ));
    let script = run.folder().join("update.sql");
    fs::write(&script, ONE)?;
    run_pgbench(database, &script.display().to_string(), WARM_UP)?;
    run_pgbench(database, &script.display().to_string(), run.window)
}

fn run_pgbench(database: &TestDatabase, script: &str, window: Duration) -> BenchResult<f64> {
    let words = format!(
        "--no-vacuum --protocol=prepared --client={} --jobs={} --time={} --define=keys={} --file={script} {}",
        NEW.clients,
        NEW.threads,
        window.as_secs(),
        NEW.keys,
        database.url(),
    );
    let pgbench = ChildProcess::spawn(fencegate_testkit::postgres::program("pgbench"), words.split(' '))?;
    let line = pgbench.wait_line(|line| line.starts_with("tps = "), window + Duration::from_mins(1))?;
    let rate = line.split(' ').nth(2).ok_or_else(|| format!("pgbench said `{line}`"))?;
    Ok(rate.parse()?)
}
