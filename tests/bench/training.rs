//! The load for profile-guided optimisation. `deploy/package/profile` builds programs that count how often each
//! piece of their code runs under this load, and optimises the released ones by the counts.

use std::net::SocketAddr;

use fencegate_testkit::zookeeper::PrivateZooKeeper;
use serde_json::Value;

use crate::{
    gateway::{BenchGateway, UpstreamKind, policy},
    guard::{
        installation,
        released::{BenchGuard, NEW},
    },
    h2load::{H2load, HttpVersion},
    locked::once_route,
    locks::ZOOKEEPER,
    nginx::Nginx,
    result::BenchResult,
    run::BenchRun,
    wrk::WrkLoad,
};

const USUAL: WrkLoad = WrkLoad { method: "GET", prefix: "/unfenced/", keys: 1000, threads: 2, clients: 64 };

/// The load on a gateway alone: mostly the most frequent kinds of requests.
const ALONE: [WrkLoad; 6] = [
    USUAL,
    WrkLoad { prefix: "/warm/", ..USUAL },
    WrkLoad { method: "POST:1024", ..USUAL },
    WrkLoad { method: "POST", prefix: "/warm/", ..USUAL },
    WrkLoad { method: "POST", prefix: "/cold/", ..USUAL },
    WrkLoad { method: "POST", prefix: "/hot/", keys: 1, threads: 1, clients: 16 },
];

/// The load on a gateway with a guard behind it.
const GUARDED: [WrkLoad; 2] =
    [WrkLoad { prefix: "/warm/", ..USUAL }, WrkLoad { method: "ONCE", prefix: "/once/", ..USUAL }];

/// Runs each load for the window of the run. The programs write their counts when they end.
pub(crate) fn train(run: &BenchRun) -> BenchResult<()> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper"), ZOOKEEPER)?;
    let service = Nginx::service(run)?;
    let gateway = BenchGateway::start(run, "gw", zookeeper.address(), service.address)?;
    for load in ALONE {
        load.run(run, gateway.public, run.window)?;
    }
    let multiplexed = H2load { spoken: HttpVersion::Http2, connections: 8, at_once: 8 };
    for route in ["unfenced", "warm"] {
        multiplexed.run(&format!("http://{}/{route}/0", gateway.public), run.window)?;
    }
    gateway.stop()?;

    let ensemble = installation(run, zookeeper.address())?;
    let guard = BenchGuard::start(run, "guard", service.address, &ensemble, None)?;
    let gateway = BenchGateway::start_with(run, &guarded_policy(zookeeper.address(), guard.address()?)?)?;
    for load in GUARDED {
        load.run(run, gateway.public, run.window)?;
    }
    gateway.stop()?;
    guard.stop()?;
    // Start another guard: the gateway used the one before with tokens far smaller than those of this load.
    let guard = BenchGuard::start(run, "tenures", service.address, &ensemble, None)?;
    NEW.run(run, guard.address()?, run.window)?;
    guard.stop()
}

fn guarded_policy(zookeeper: SocketAddr, guard: SocketAddr) -> BenchResult<Value> {
    let mut policy = policy("guarded", zookeeper, guard, UpstreamKind::Guard);
    policy["routes"].as_array_mut().ok_or("a policy has routes")?.push(once_route());
    Ok(policy)
}
