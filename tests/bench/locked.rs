//! Operations that run once and under a lock, compared with other programs for this: Restate, the lock of redis-py,
//! and the lock of etcd.

mod fetched;
mod libraries;
mod restate;

use std::{net::SocketAddr, time::Duration};

use fencegate_testkit::zookeeper::PrivateZooKeeper;
use serde_json::{Value, json};

use self::{
    libraries::{LockLibrary, LockServer, PythonClient},
    restate::RestatePackages,
};
use crate::{
    gateway::{BenchGateway, UpstreamKind, policy},
    guard::{installation, released::BenchGuard},
    locks::ZOOKEEPER,
    nginx::Nginx,
    report::{BenchRound, BenchRow, RatioGoal},
    result::BenchResult,
    run::BenchRun,
    wrk::WrkLoad,
};

const CLIENTS: u32 = 64;
const MANY: u32 = 1000;
const WARM_UP: Duration = Duration::from_secs(2);

/// The program that runs the operations. Each call is one POST that the same service answers with three bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockBackend {
    /// A gateway and a guard, which records each operation and its response.
    Ours,
    /// Restate, which promises the same: one call at a time for each key, and each operation at most once.
    Restate,
    /// A lock library, which promises less: no service compares tokens, and repeated operations are not recognized.
    Library(LockLibrary),
}

const WORKERS: [LockBackend; 4] = [
    LockBackend::Ours,
    LockBackend::Restate,
    LockBackend::Library(LockLibrary::Redis),
    LockBackend::Library(LockLibrary::Etcd),
];

/// Calls per second.
#[derive(Debug, Clone, Copy)]
struct CallRates {
    hot: f64,
    many: f64,
}

struct BenchSite<'a> {
    run: &'a BenchRun,
    zookeeper: PrivateZooKeeper,
    ensemble: String,
    service: Nginx,
    restate: RestatePackages,
    python: PythonClient,
}

pub(crate) fn measure(run: &BenchRun) -> BenchResult<Vec<BenchRow>> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper-locked"), ZOOKEEPER)?;
    let site = BenchSite {
        run,
        ensemble: installation(run, zookeeper.address())?,
        zookeeper,
        service: Nginx::service(run)?,
        restate: RestatePackages::fetch(run)?,
        python: PythonClient::fetch(run)?,
    };
    let mut rounds = Vec::new();
    // The order of the programs is reversed in each round, so that none is always the first.
    let mut order = WORKERS;
    for round in 1..=run.rounds {
        let done = order
            .iter()
            .map(|&worker| Ok((worker, site.measure_backend(worker, round)?)))
            .collect::<BenchResult<Vec<_>>>()?;
        let told = done.iter().map(|(worker, done)| format!("{worker:?} {:.0}, {:.0}", done.hot, done.many));
        run.print(&format!("round {round}, hot and many: {}", told.collect::<Vec<_>>().join("; ")));
        rounds.push(done);
        order.reverse();
    }
    Ok(benches(&rounds))
}

fn benches(rounds: &[Vec<(LockBackend, CallRates)>]) -> Vec<BenchRow> {
    let beside = [
        (
            LockBackend::Restate,
            "Restate, a virtual object",
            ["once-hot", "once-many"],
            RatioGoal::AtLeast(10.0),
        ),
        (
            LockBackend::Library(LockLibrary::Redis),
            "redis-py Lock and a call",
            ["once-hot-beside-redis", "once-many-beside-redis"],
            RatioGoal::None,
        ),
        (
            LockBackend::Library(LockLibrary::Etcd),
            "a lock of etcd and a call",
            ["once-hot-beside-etcd", "once-many-beside-etcd"],
            RatioGoal::None,
        ),
    ];
    let each = |(worker, peer, [hot, many], goal): (LockBackend, _, [_; 2], _)| {
        let bench = |name, of: fn(CallRates) -> f64| BenchRow {
            name,
            peer,
            unit: "locked calls/s",
            goal,
            rounds: rounds.iter().filter_map(|done| round_against(done, worker, of)).collect(),
        };
        [bench(hot, |done| done.hot), bench(many, |done| done.many)]
    };
    beside.into_iter().flat_map(each).collect()
}

/// Pairs our result of one round with that of another program in the same round.
fn round_against(
    done: &[(LockBackend, CallRates)],
    theirs: LockBackend,
    of: fn(CallRates) -> f64,
) -> Option<BenchRound> {
    let of = |wanted| done.iter().find(|(worker, _)| *worker == wanted).map(|&(_, done)| of(done));
    Some(BenchRound { ours: of(LockBackend::Ours)?, theirs: of(theirs)? })
}

impl BenchSite<'_> {
    /// Measures one backend. Its programs are started with empty stores, and ended afterwards.
    fn measure_backend(&self, worker: LockBackend, round: u32) -> BenchResult<CallRates> {
        let run = self.run;
        let service = self.service.address;
        match worker {
            LockBackend::Ours => self.measure_gateway(round),
            LockBackend::Restate => {
                let restate = self.restate.start(run, service, round)?;
                measure_rates(run, restate.ingress, "/account/*/pay")
            }
            LockBackend::Library(library) => {
                let server = LockServer::start(run, library, round)?;
                let rate = |keys| self.python.measure_rate(run, &server, service, keys, CLIENTS);
                Ok(CallRates { hot: rate(1)?, many: rate(MANY)? })
            }
        }
    }

    fn measure_gateway(&self, round: u32) -> BenchResult<CallRates> {
        let run = self.run;
        let name = format!("once-{round}");
        let guard = BenchGuard::start(run, &name, self.service.address, &self.ensemble, None)?;
        let mut policy = policy("gw", self.zookeeper.address(), guard.address()?, UpstreamKind::Guard);
        policy["routes"].as_array_mut().ok_or("a policy has routes")?.push(once_route());
        let gateway = BenchGateway::start_with(run, &policy)?;
        let done = measure_rates(run, gateway.public, "/once/");
        gateway.stop()?;
        guard.stop()?;
        done
    }
}

/// A route whose operations the guard records.
pub(crate) fn once_route() -> Value {
    json!({
        "name": "once",
        "upstream": "service",
        "match": {"methods": ["POST"], "path": "/once/{key}"},
        "fence": {"key": "once/{path.key}", "wait": "30s", "once": {"keep": "1h"}},
    })
}

/// Sends requests that are one operation each, and returns the rates for one key and for many keys.
fn measure_rates(run: &BenchRun, server: SocketAddr, prefix: &'static str) -> BenchResult<CallRates> {
    let rate = |keys| {
        let load = WrkLoad { method: "ONCE", prefix, keys, threads: 2, clients: CLIENTS };
        load.run(run, server, WARM_UP)?;
        BenchResult::Ok(load.run(run, server, run.window)?.per_second)
    };
    Ok(CallRates { hot: rate(1)?, many: rate(MANY)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Our rate is compared with the rate of another program in the same round.
    #[test]
    fn rates_are_compared_within_round() {
        let done = |hot, many| CallRates { hot, many };
        let theirs = LockBackend::Library(LockLibrary::Redis);
        let round = vec![(theirs, done(10.0, 20.0)), (LockBackend::Ours, done(30.0, 40.0))];
        let benches = benches(&[round]);
        let of = |name| &benches.iter().find(|bench| bench.name == name).expect("it is told").rounds;
        assert_eq!(*of("once-hot-beside-redis"), [BenchRound { ours: 30.0, theirs: 10.0 }]);
        assert_eq!(*of("once-many-beside-redis"), [BenchRound { ours: 40.0, theirs: 20.0 }]);
        assert_eq!(*of("once-hot"), [], "who did not work is not told");
    }
}
