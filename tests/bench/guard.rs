//! A guard behind the gateway compared with the gateway alone, and many new tenures at once compared with one at a
//! time.

pub(crate) mod counted;
pub(crate) mod released;
mod same_tenure;
mod shared;

use std::{fs, net::SocketAddr, process::Command};

use fencegate_testkit::zookeeper::PrivateZooKeeper;
use serde_json::Value;

use self::released::{BenchGuard, NEW};
use crate::{
    gateway::{UpstreamKind, policy},
    locks::ZOOKEEPER,
    nginx::Nginx,
    report::{BenchRound, BenchRow, RatioGoal},
    result::BenchResult,
    run::BenchRun,
    wrk::WrkLoad,
};

const ONE_AT_A_TIME: WrkLoad = WrkLoad { threads: 1, clients: 1, ..NEW };

pub(crate) fn measure(run: &BenchRun) -> BenchResult<Vec<BenchRow>> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper-guard"), ZOOKEEPER)?;
    let service = Nginx::service(run)?;
    let ensemble = installation(run, zookeeper.address())?;
    let mut benches = same_tenure::measure(run, zookeeper.address(), &service, &ensemble)?;
    let mut new = vec![];
    for round in 1..=run.rounds {
        // Start another guard: the gateway above uses the one before with tokens far smaller than those of this
        // load, which would make them stale.
        let guard = BenchGuard::start(run, &format!("tenures-{round}"), service.address, &ensemble, None)?;
        let theirs = ONE_AT_A_TIME.run(run, guard.address()?, run.window)?.per_second;
        let ours = NEW.run(run, guard.address()?, run.window)?.per_second;
        run.print(&format!("round {round}: {ours:.0} new tenures/s of 64 clients, {theirs:.0} of one"));
        new.push(BenchRound { ours, theirs });
        guard.stop()?;
    }
    benches.extend(shared::measure(run, service.address, &ensemble)?);
    benches.push(BenchRow {
        name: "guard-new-tenures",
        peer: "one fsync at a time",
        unit: "tenures/s",
        goal: RatioGoal::AtLeast(3.0),
        rounds: new,
    });
    Ok(benches)
}

/// Creates the installation in ZooKeeper. Returns the name by which a guard knows it.
pub(crate) fn installation(run: &BenchRun, zookeeper: SocketAddr) -> BenchResult<String> {
    let file = run.folder().join("installation.yaml");
    fs::write(&file, policy("gw", zookeeper, zookeeper, UpstreamKind::Service).to_string())?;
    let file = file.display().to_string();
    let said = |words: &[&str]| -> BenchResult<Vec<u8>> {
        let output = Command::new(run.gateway()).args(words).arg("-c").arg(&file).output()?;
        let log = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(output.stdout) } else { Err(format!("{words:?}: {log}").into()) }
    };
    said(&["era", "init"])?;
    let era: Value = serde_json::from_slice(&said(&["era", "show", "--format", "json"])?)?;
    Ok(era["ensemble"].as_str().ok_or("an installation has a name")?.to_owned())
}
