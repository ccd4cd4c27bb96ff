//! HTTP requests under a lock, compared with locks of Curator alone, on the same ZooKeeper. The disk acknowledges
//! every write.

use std::{net::SocketAddr, time::Duration};

use fencegate_testkit::zookeeper::{PrivateZooKeeper, ZooKeeperDurability, ZooKeeperServerConfig};
use serde_json::{Value, json};

use crate::{
    curator::CuratorProgram,
    gateway::{BenchGateway, UpstreamKind, policy},
    nginx::Nginx,
    report::{BenchRound, BenchRow, RatioGoal},
    result::BenchResult,
    run::BenchRun,
    wrk::WrkLoad,
};

/// ZooKeeper as in production: the default tick, and no write is acknowledged before it is on the disk.
pub(crate) const ZOOKEEPER: ZooKeeperServerConfig = ZooKeeperServerConfig {
    tick: Duration::from_secs(2),
    durability: ZooKeeperDurability::Machine,
    heap_mib: 128,
};

/// One comparison of gateways with Curator.
struct LockComparison {
    route: &'static str,
    prefix: &'static str,
    keys: u32,
    /// The number of keys that one request takes together.
    set: u32,
    /// The number of clients of each gateway, and of threads of each Java process.
    clients: &'static [u32],
    /// Whether requests may find their key held by their gateway.
    warm: WarmKeys,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WarmKeys {
    /// Each request must create a lock node; otherwise the bench would measure something else.
    Never,
    MayBe,
}

const COLD: LockComparison = LockComparison {
    route: "cold",
    prefix: "/cold/",
    keys: 64,
    set: 1,
    clients: &[64],
    warm: WarmKeys::Never,
};
const HOT: LockComparison =
    LockComparison { route: "hot", prefix: "/hot/", keys: 1, set: 1, clients: &[16], warm: WarmKeys::MayBe };
const SPREAD: LockComparison = LockComparison { clients: &[6, 5, 5], ..HOT };

/// Sets of 1, 4 and 16 keys, which are all free. A set of one key is taken in the same way as the larger ones.
const SETS: [LockComparison; 3] = [
    LockComparison { route: "set-1", prefix: "/set-1/", set: 1, ..COLD },
    LockComparison { route: "set-4", prefix: "/set-4/", set: 4, ..COLD },
    LockComparison { route: "set-16", prefix: "/set-16/", set: 16, ..COLD },
];

pub(crate) fn measure(run: &BenchRun) -> BenchResult<Vec<BenchRow>> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper"), ZOOKEEPER)?;
    let site = BenchSite {
        run,
        zookeeper: zookeeper.address(),
        service: Nginx::service(run)?,
        curator: CuratorProgram::compile(run)?,
    };
    let mut cold = vec![];
    let mut one = vec![];
    let mut three = vec![];
    let mut spread = vec![];
    let mut sets = SETS.map(|_| vec![]);
    for round in 1..=run.rounds {
        for (set, rounds) in SETS.iter().zip(&mut sets) {
            rounds.push(site.measure_pair(set, round)?);
        }
        cold.push(site.measure_pair(&COLD, round)?);
        one.push(site.measure_pair(&HOT, round)?);
        three.push(site.measure_pair(&SPREAD, round)?);
        let ours = |rounds: &[BenchRound]| rounds.last().map(|round| round.ours).ok_or("just measured");
        spread.push(BenchRound { ours: ours(&three)?, theirs: ours(&one)? });
    }
    let bench = |name, peer, goal, rounds| BenchRow { name, peer, unit: "locked requests/s", goal, rounds };
    let [set_1, set_4, set_16] = sets;
    Ok(vec![
        bench("set-1", "Curator, 64 threads, 64 keys, bare locks", RatioGoal::None, set_1),
        bench("set-4", "Curator, 64 threads, 64 sets of 4 keys, bare locks", RatioGoal::None, set_4),
        bench("set-16", "Curator, 64 threads, 64 sets of 16 keys, bare locks", RatioGoal::None, set_16),
        bench("cold-strict", "Curator, 64 threads, 64 keys, bare locks", RatioGoal::AtLeast(2.0), cold),
        bench("hot-one-gateway", "Curator, 16 threads, one key, bare locks", RatioGoal::AtLeast(20.0), one),
        bench(
            "hot-three-gateways",
            "Curator, 16 threads in 3 processes, one key, bare locks",
            RatioGoal::AtLeast(8.0),
            three,
        ),
        bench("hot-three-gateways-beside-one", "one gateway", RatioGoal::AtLeast(0.7), spread),
    ])
}

/// A route on which a request takes all keys of a set.
fn set_route(duel: &LockComparison) -> Value {
    let keys: Vec<_> = (0..duel.set).map(|number| format!("{}/{{path.key}}/{number}", duel.route)).collect();
    json!({
        "name": duel.route,
        "upstream": "service",
        "match": {"methods": ["POST"], "path": format!("{}{{key}}", duel.prefix)},
        "fence": {"keys": keys, "wait": "30s"},
    })
}

struct BenchSite<'a> {
    run: &'a BenchRun,
    zookeeper: SocketAddr,
    service: Nginx,
    curator: CuratorProgram,
}

impl BenchSite<'_> {
    /// Measures gateways and Curator once. The one that was first in a round is second in the next round.
    fn measure_pair(&self, duel: &LockComparison, round: u32) -> BenchResult<BenchRound> {
        let (ours, theirs);
        if round % 2 == 1 {
            ours = self.measure_gateways(duel)?;
            theirs = self.measure_curator(duel)?;
        } else {
            theirs = self.measure_curator(duel)?;
            ours = self.measure_gateways(duel)?;
        }
        self.run.print(&format!(
            "round {round}: {} x{}: {ours:.0} beside {theirs:.0}",
            duel.route,
            duel.clients.len()
        ));
        Ok(BenchRound { ours, theirs })
    }

    fn measure_curator(&self, duel: &LockComparison) -> BenchResult<f64> {
        self.curator.measure_lock_rate(self.run, self.zookeeper, duel.keys, duel.set, duel.clients)
    }

    /// The number of requests per second. The gateways are ended after the measurement, so that their heartbeats do
    /// not slow Curator down.
    fn measure_gateways(&self, duel: &LockComparison) -> BenchResult<f64> {
        const WARM_UP: Duration = Duration::from_secs(2);
        let start = |number| {
            let name = format!("gw-{number}");
            let mut policy = policy(&name, self.zookeeper, self.service.address, UpstreamKind::Service);
            policy["routes"].as_array_mut().expect("a list").extend(SETS.iter().map(set_route));
            BenchGateway::start_with(self.run, &policy)
        };
        let gateways: Vec<BenchGateway> = (0..duel.clients.len()).map(start).collect::<BenchResult<_>>()?;
        self.run_load(duel, &gateways, WARM_UP)?;
        let rate = self.run_load(duel, &gateways, self.run.window)?;
        for gateway in gateways {
            if duel.warm == WarmKeys::Never && gateway.warm_requests(duel.route)? > 0.0 {
                return Err("a request of a strict route found its key at hand".into());
            }
            gateway.stop()?;
        }
        Ok(rate)
    }

    fn run_load(
        &self,
        duel: &LockComparison,
        gateways: &[BenchGateway],
        window: Duration,
    ) -> BenchResult<f64> {
        let asking = gateways.iter().zip(duel.clients).map(|(gateway, &clients)| {
            // One thread per client, so that each client has a key of its own if there are enough keys.
            let load =
                WrkLoad { method: "POST", prefix: duel.prefix, keys: duel.keys, threads: clients, clients };
            load.start(self.run, gateway.public, window)
        });
        let asking: Vec<_> = asking.collect::<BenchResult<_>>()?;
        let mut rate = 0.0;
        for one in asking {
            rate += one.finish()?.per_second;
        }
        Ok(rate)
    }
}
