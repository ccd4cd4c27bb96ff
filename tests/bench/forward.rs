//! One key that the clients of three gateways want. Requests that are forwarded to the holder are compared with
//! handovers of the key, and with one gateway alone.

use std::{net::SocketAddr, time::Duration};

use fencegate_testkit::zookeeper::PrivateZooKeeper;
use serde_json::json;

use crate::{
    gateway::{BenchGateway, UpstreamKind, policy},
    locks::ZOOKEEPER,
    nginx::Nginx,
    report::{BenchRound, BenchRow, RatioGoal},
    result::BenchResult,
    run::BenchRun,
    wrk::WrkLoad,
};

/// One of the arrangements that are compared.
struct ForwardSetup {
    /// The number of clients of each gateway.
    clients: &'static [u32],
    forward: &'static str,
}

const ALONE: ForwardSetup = ForwardSetup { clients: &[16], forward: "never" };
const HANDED: ForwardSetup = ForwardSetup { clients: &[6, 5, 5], forward: "never" };
const SENT_ON: ForwardSetup = ForwardSetup { clients: &[6, 5, 5], forward: "holder" };

const ROUTE: &str = "hot";

pub(crate) fn measure(run: &BenchRun) -> BenchResult<Vec<BenchRow>> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper"), ZOOKEEPER)?;
    let site = BenchSite { run, zookeeper: zookeeper.address(), service: Nginx::service(run)? };
    let mut beside_handed = vec![];
    let mut beside_one = vec![];
    for round in 1..=run.rounds {
        let mut rates = [0.0; 3];
        // The order of the turns is reversed in each round.
        let mut turns = [(0, &ALONE), (1, &HANDED), (2, &SENT_ON)];
        if round % 2 == 0 {
            turns.reverse();
        }
        for (which, turn) in turns {
            rates[which] = site.measure_rate(turn)?;
        }
        let [one, handed, ours] = rates;
        run.print(&format!("round {round}: one {one:.0}, handed over {handed:.0}, sent on {ours:.0}"));
        beside_handed.push(BenchRound { ours, theirs: handed });
        beside_one.push(BenchRound { ours, theirs: one });
    }
    let bench = |name, peer, goal, rounds| BenchRow { name, peer, unit: "locked requests/s", goal, rounds };
    Ok(vec![
        bench("forwarded", "the same, handed over", RatioGoal::AtLeast(1.0), beside_handed),
        bench("forwarded-beside-one", "one gateway", RatioGoal::AtLeast(0.9), beside_one),
    ])
}

struct BenchSite<'a> {
    run: &'a BenchRun,
    zookeeper: SocketAddr,
    service: Nginx,
}

impl BenchSite<'_> {
    fn measure_rate(&self, turn: &ForwardSetup) -> BenchResult<f64> {
        const WARM_UP: Duration = Duration::from_secs(2);
        let start = |number| self.gateway(&format!("gw-{number}"), turn);
        let gateways: Vec<BenchGateway> = (0..turn.clients.len()).map(start).collect::<BenchResult<_>>()?;
        self.run_load(turn, &gateways, WARM_UP)?;
        let rate = self.run_load(turn, &gateways, self.run.window)?;
        let mut sent_on = 0.0;
        for gateway in gateways {
            sent_on += gateway.acquisitions(ROUTE, "result=\"forwarded\"")?;
            gateway.stop()?;
        }
        if (sent_on > 0.0) != (turn.forward == "holder") {
            return Err(format!("{sent_on} requests were sent on with `forward: {}`", turn.forward).into());
        }
        Ok(rate)
    }

    /// Starts a gateway that other gateways can reach, whether or not it forwards: only the `forward` of the route
    /// differs.
    fn gateway(&self, name: &str, turn: &ForwardSetup) -> BenchResult<BenchGateway> {
        let mut policy = policy(name, self.zookeeper, self.service.address, UpstreamKind::Service);
        policy["peer"] = json!({"address": "127.0.0.1:0", "advertise": "127.0.0.1:1"});
        let routes = policy["routes"].as_array_mut().ok_or("a policy has routes")?;
        let hot = routes.iter_mut().find(|route| route["name"] == ROUTE).ok_or("there is a hot route")?;
        hot["fence"]["forward"] = turn.forward.into();
        BenchGateway::start_with(self.run, &policy)
    }

    fn run_load(&self, turn: &ForwardSetup, gateways: &[BenchGateway], window: Duration) -> BenchResult<f64> {
        let asking = gateways.iter().zip(turn.clients).map(|(gateway, &clients)| {
            let load = WrkLoad { method: "POST", prefix: "/hot/", keys: 1, threads: clients, clients };
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
