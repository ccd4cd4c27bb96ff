//! Whole HTTP requests under a lock, compared with bare locks of Curator on the same ZooKeeper, which waits for the
//! disk.

use std::{net::SocketAddr, time::Duration};

use fencegate::demo::zookeeper::{Durability, PrivateZooKeeper, Settings};

use crate::{
    curator::Curator,
    gateway::Gateway,
    nginx::Nginx,
    outcome::Outcome,
    report::{Bench, Goal, Round},
    run::Run,
    wrk::Load,
};

/// As in production: default sessions, and no write is acknowledged before it is on the disk.
pub(crate) const ZOOKEEPER: Settings =
    Settings { tick: Duration::from_secs(2), durability: Durability::Machine, heap_mib: 128 };

/// One comparison.
struct Duel {
    route: &'static str,
    prefix: &'static str,
    keys: u32,
    /// The number of clients of each gateway, and of threads of each Java process.
    clients: &'static [u32],
    /// The share of requests that may find their key at hand.
    warm: Warm,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Warm {
    /// Each request must make a lock node. Otherwise the bench measures something else.
    Never,
    MayBe,
}

const COLD: Duel = Duel { route: "cold", prefix: "/cold/", keys: 64, clients: &[64], warm: Warm::Never };
const HOT: Duel = Duel { route: "hot", prefix: "/hot/", keys: 1, clients: &[16], warm: Warm::MayBe };
const SPREAD: Duel = Duel { route: "hot", prefix: "/hot/", keys: 1, clients: &[6, 5, 5], warm: Warm::MayBe };

pub(crate) fn measure(run: &Run) -> Outcome<Vec<Bench>> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper"), ZOOKEEPER)?;
    let site = Site {
        run,
        zookeeper: zookeeper.address(),
        service: Nginx::service(run)?,
        curator: Curator::compile(run)?,
    };
    let (mut cold, mut one, mut three, mut spread) = (vec![], vec![], vec![], vec![]);
    for round in 1..=run.rounds {
        cold.push(site.duel(&COLD, round)?);
        one.push(site.duel(&HOT, round)?);
        three.push(site.duel(&SPREAD, round)?);
        let ours = |rounds: &[Round]| rounds.last().map(|round| round.ours).ok_or("just measured");
        spread.push(Round { ours: ours(&three)?, theirs: ours(&one)? });
    }
    let bench = |name, peer, goal, rounds| Bench { name, peer, unit: "locked requests/s", goal, rounds };
    Ok(vec![
        bench("cold-strict", "Curator, 64 threads, 64 keys, bare locks", Goal::AtLeast(2.0), cold),
        bench("hot-one-gateway", "Curator, 16 threads, one key, bare locks", Goal::AtLeast(20.0), one),
        bench(
            "hot-three-gateways",
            "Curator, 16 threads in 3 processes, one key, bare locks",
            Goal::AtLeast(8.0),
            three,
        ),
        bench("hot-three-gateways-beside-one", "one gateway", Goal::AtLeast(0.7), spread),
    ])
}

struct Site<'a> {
    run: &'a Run,
    zookeeper: SocketAddr,
    service: Nginx,
    curator: Curator,
}

impl Site<'_> {
    /// The side that was first in one round is second in the next.
    fn duel(&self, duel: &Duel, round: u32) -> Outcome<Round> {
        let (ours, theirs);
        if round % 2 == 1 {
            ours = self.ours(duel)?;
            theirs = self.theirs(duel)?;
        } else {
            theirs = self.theirs(duel)?;
            ours = self.ours(duel)?;
        }
        self.run.tell(&format!(
            "round {round}: {} x{}: {ours:.0} beside {theirs:.0}",
            duel.route,
            duel.clients.len()
        ));
        Ok(Round { ours, theirs })
    }

    fn theirs(&self, duel: &Duel) -> Outcome<f64> {
        self.curator.locks(self.run, self.zookeeper, duel.keys, duel.clients)
    }

    /// Gateways are started for the turn and end with it, so that no heartbeats slow the other side down.
    fn ours(&self, duel: &Duel) -> Outcome<f64> {
        const WARM_UP: Duration = Duration::from_secs(2);
        let start =
            |number| Gateway::start(self.run, &format!("gw-{number}"), self.zookeeper, self.service.address);
        let gateways: Vec<Gateway> = (0..duel.clients.len()).map(start).collect::<Outcome<_>>()?;
        self.ask(duel, &gateways, WARM_UP)?;
        let rate = self.ask(duel, &gateways, self.run.window)?;
        for gateway in gateways {
            if duel.warm == Warm::Never && gateway.warm(duel.route)? > 0.0 {
                return Err("a request of a strict route found its key at hand".into());
            }
            gateway.stop()?;
        }
        Ok(rate)
    }

    fn ask(&self, duel: &Duel, gateways: &[Gateway], window: Duration) -> Outcome<f64> {
        let asking = gateways.iter().zip(duel.clients).map(|(gateway, &clients)| {
            // One thread per client. So each client has a key of its own if there are enough keys.
            let load =
                Load { method: "POST", prefix: duel.prefix, keys: duel.keys, threads: clients, clients };
            load.begin(self.run, gateway.public, window)
        });
        let asking: Vec<_> = asking.collect::<Outcome<_>>()?;
        let mut rate = 0.0;
        for one in asking {
            rate += one.answered()?.per_second;
        }
        Ok(rate)
    }
}
