//! A route without a lock, and a route whose keys are already held, compared with proxies that take no locks.

use std::time::Duration;

use fencegate_testkit::zookeeper::PrivateZooKeeper;

use crate::{
    gateway::BenchGateway,
    locks::ZOOKEEPER,
    nginx::Nginx,
    peers::ProxyKind,
    report::{BenchRound, BenchRow, RatioGoal},
    result::BenchResult,
    run::BenchRun,
    wrk::{WrkLoad, WrkResult},
};

/// Far more keys than clients, so that two clients seldom want the same key.
const KEYS: u32 = 1000;
const WARM_UP: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BenchTurn {
    Unfenced,
    Fenced,
    Beside(ProxyKind),
}

/// The result of one measurement.
#[derive(Clone, Copy)]
struct TurnResult {
    per_second: f64,
    p99_ms: f64,
    /// The processor time per request of the gateway or proxy alone.
    cpu_us: f64,
}

struct BenchSite<'a> {
    run: &'a BenchRun,
    zookeeper: PrivateZooKeeper,
    service: Nginx,
}

pub(crate) fn measure(run: &BenchRun) -> BenchResult<Vec<BenchRow>> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper-proxy"), ZOOKEEPER)?;
    let site = BenchSite { run, zookeeper, service: Nginx::service(run)? };
    let alone = load("/unfenced/").run(run, site.service.address, WARM_UP)?;
    run.print(&format!("the service alone: {:.0} requests/s", alone.per_second));

    let mut rounds = Vec::new();
    // The order is reversed in each round, so that none is always the first.
    let mut order: Vec<BenchTurn> = ProxyKind::ALL.into_iter().map(BenchTurn::Beside).collect();
    order.insert(order.len() / 2, BenchTurn::Fenced);
    order.insert(1, BenchTurn::Unfenced);
    for round in 1..=run.rounds {
        let taken = order
            .iter()
            .map(|&turn| Ok((turn, site.measure_turn(turn)?)))
            .collect::<BenchResult<Vec<_>>>()?;
        let told = taken.iter().map(|(turn, taken)| format!("{turn:?} {:.0}", taken.per_second));
        run.print(&format!("round {round}: {} requests/s", told.collect::<Vec<_>>().join(", ")));
        rounds.push(taken);
        order.reverse();
    }
    Ok(benches(&rounds))
}

/// The results of one round.
type TurnResults = Vec<(BenchTurn, TurnResult)>;

/// The other proxies, each with its name in the report and the names of its benches.
const PEERS: [(ProxyKind, &str, [&str; 2]); 6] = [
    (ProxyKind::Nginx, "nginx proxy_pass", ["unfenced", "fenced-warm"]),
    (
        ProxyKind::NginxWithFields,
        "nginx with the same fields",
        ["unfenced-beside-fields", "fenced-warm-beside-fields"],
    ),
    (ProxyKind::HaProxy, "HAProxy", ["unfenced-beside-haproxy", "fenced-warm-beside-haproxy"]),
    (ProxyKind::Caddy, "Caddy", ["unfenced-beside-caddy", "fenced-warm-beside-caddy"]),
    (ProxyKind::BareHyper, "bare hyper", ["unfenced-beside-bare", "fenced-warm-beside-bare"]),
    (ProxyKind::Pingora, "Pingora", ["unfenced-beside-pingora", "fenced-warm-beside-pingora"]),
];

fn benches(rounds: &[TurnResults]) -> Vec<BenchRow> {
    let per_second = |taken: TurnResult| taken.per_second;
    let mut benches = Vec::new();
    for (peer, called, [unfenced, fenced]) in PEERS {
        let nginx = peer == ProxyKind::Nginx;
        let goal = |least| if nginx { RatioGoal::AtLeast(least) } else { RatioGoal::None };
        let unfenced_goal = if peer == ProxyKind::HaProxy { RatioGoal::AtLeast(1.0) } else { goal(0.9) };
        let bench = |name, turn, unit, goal, of: fn(TurnResult) -> f64| BenchRow {
            name,
            peer: called,
            unit,
            goal,
            rounds: rounds.iter().filter_map(|turns| measure_peer(turns, turn, peer, of)).collect(),
        };
        benches.push(bench(unfenced, BenchTurn::Unfenced, "requests/s", unfenced_goal, per_second));
        benches.push(bench(fenced, BenchTurn::Fenced, "requests/s", goal(0.8), per_second));
        if nginx {
            let p99 = |taken: TurnResult| taken.p99_ms;
            let cpu = |taken: TurnResult| taken.cpu_us;
            benches.extend([
                bench("unfenced-p99", BenchTurn::Unfenced, "ms", RatioGoal::AtMost(1.5), p99),
                bench("unfenced-cpu", BenchTurn::Unfenced, "us/request", RatioGoal::AtMost(1.25), cpu),
                bench("fenced-warm-p99", BenchTurn::Fenced, "ms", RatioGoal::None, p99),
                bench("fenced-warm-cpu", BenchTurn::Fenced, "us/request", RatioGoal::AtMost(1.6), cpu),
            ]);
        }
    }
    benches
}

/// Pairs the gateway's result of one round with that of another proxy in the same round.
fn measure_peer(
    turns: &TurnResults,
    ours: BenchTurn,
    theirs: ProxyKind,
    of: fn(TurnResult) -> f64,
) -> Option<BenchRound> {
    let of = |wanted| turns.iter().find(|(turn, _)| *turn == wanted).map(|&(_, taken)| of(taken));
    Some(BenchRound { ours: of(ours)?, theirs: of(BenchTurn::Beside(theirs))? })
}

impl BenchSite<'_> {
    /// Measures the gateway or a proxy, which is started for this and ended afterwards.
    fn measure_turn(&self, turn: BenchTurn) -> BenchResult<TurnResult> {
        if let BenchTurn::Beside(peer) = turn {
            let peer = peer.start(self.run, self.service.address)?;
            let load = load("/unfenced/");
            load.run(self.run, peer.address(), WARM_UP)?;
            let before = peer.cpu_seconds()?;
            let answered = load.run(self.run, peer.address(), self.run.window)?;
            return Ok(TurnResult::new(answered, peer.cpu_seconds()? - before));
        }
        let gateway = BenchGateway::start(self.run, "gw", self.zookeeper.address(), self.service.address)?;
        let load = load(if turn == BenchTurn::Fenced { "/warm/" } else { "/unfenced/" });
        // The warm-up takes every key once, so that the measured requests find it held.
        load.run(self.run, gateway.public, WARM_UP)?;
        let before = gateway.cpu_seconds()?;
        let asked = gateway.acquisitions("warm", "")?;
        let warm = gateway.warm_requests("warm")?;
        let answered = load.run(self.run, gateway.public, self.run.window)?;
        let taken = TurnResult::new(answered, gateway.cpu_seconds()? - before);
        if turn == BenchTurn::Fenced {
            let asked = gateway.acquisitions("warm", "")? - asked;
            let warm = gateway.warm_requests("warm")? - warm;
            // A few requests may find their key in use by another client, and count as not warm.
            if asked < answered.requests || warm < 0.95 * asked {
                return Err(format!("{warm} of {asked} requests found their key warm").into());
            }
        }
        gateway.stop()?;
        Ok(taken)
    }
}

fn load(prefix: &'static str) -> WrkLoad {
    WrkLoad { method: "GET", prefix, keys: KEYS, threads: 2, clients: 64 }
}

impl TurnResult {
    fn new(answered: WrkResult, cpu_seconds: f64) -> Self {
        Self {
            per_second: answered.per_second,
            p99_ms: answered.p99.as_secs_f64() * 1e3,
            cpu_us: cpu_seconds * 1e6 / answered.requests,
        }
    }
}
