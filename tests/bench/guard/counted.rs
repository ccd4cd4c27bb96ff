//! The number of instructions in user space that a guard needs for each request of a known tenure, counted as for a
//! gateway.

use fencegate_testkit::zookeeper::PrivateZooKeeper;

use super::{installation, released::BenchGuard};
use crate::{
    gateway::{BenchGateway, UpstreamKind, policy},
    instructions::{InstructionCounter, LOAD},
    locks::ZOOKEEPER,
    nginx::Nginx,
    report::{BenchRound, BenchRow, RatioGoal},
    result::BenchResult,
    run::BenchRun,
    wrk::WrkLoad,
};

/// Counts with TCP ports on both sides of the guard, and with Unix sockets.
pub(crate) fn measure(run: &BenchRun) -> BenchResult<Vec<BenchRow>> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper-guard-counted"), ZOOKEEPER)?;
    let service = Nginx::service(run)?;
    let ensemble = installation(run, zookeeper.address())?;
    let counted = |name: &str, listen: &str, endpoint: &str| {
        let counter = InstructionCounter::new(run, name);
        let guard = BenchGuard::start_command(
            run,
            &counter.command_prefix(&run.gateway()),
            name,
            listen,
            endpoint,
            &ensemble,
        )?;
        let mut policy = policy("gw-counted", zookeeper.address(), service.address, UpstreamKind::Guard);
        policy["upstreams"]["service"]["endpoints"] = [guard.endpoint.as_str()].as_slice().into();
        // The guard is fifty times slower while its instructions are counted.
        policy["upstreams"]["service"]["response_timeout"] = "45s".into();
        let gateway = BenchGateway::start_with(run, &policy)?;
        let count = counter.count(run, guard.pid(), gateway.public, WrkLoad { prefix: "/warm/", ..LOAD })?;
        gateway.stop()?;
        guard.stop()?;
        BenchResult::Ok(count)
    };
    let socket = format!("unix:{}", run.folder().join("counted.sock").display());
    let theirs = counted("guard-counted", "127.0.0.1:0", &format!("http://{}", service.address))?;
    let ours = counted("guard-counted-unix", &socket, &service.socket)?;
    Ok(vec![BenchRow {
        name: "guard-instructions-unix",
        peer: "the same by ports",
        unit: "instructions/request",
        goal: RatioGoal::None,
        rounds: vec![BenchRound { ours, theirs }],
    }])
}
