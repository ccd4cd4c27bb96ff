//! A route without a lock and one whose keys are held already, beside nginx that only forwards.

use std::time::Duration;

use fencegate::demo::zookeeper::PrivateZooKeeper;

use crate::{
    gateway::Gateway,
    locks::ZOOKEEPER,
    nginx::Nginx,
    outcome::Outcome,
    report::{Bench, Goal, Round},
    run::Run,
    wrk::{Answered, Load},
};

/// Far more than clients, so that they seldom meet at one.
const KEYS: u32 = 1000;
const WARM_UP: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Unfenced,
    Fenced,
    Nginx,
}

/// What one turn gave.
#[derive(Clone, Copy)]
struct Taken {
    per_second: f64,
    p99_ms: f64,
    /// Of the server alone, per request.
    cpu_us: f64,
}

struct Site<'a> {
    run: &'a Run,
    zookeeper: PrivateZooKeeper,
    service: Nginx,
}

pub(crate) fn measure(run: &Run) -> Outcome<Vec<Bench>> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper-proxy"), ZOOKEEPER)?;
    let site = Site { run, zookeeper, service: Nginx::service(run)? };
    let alone = load("/unfenced/").ask(run, site.service.address, WARM_UP)?;
    run.tell(&format!("the service alone: {:.0} requests/s", alone.per_second));

    let (mut unfenced, mut fenced) = (vec![], vec![]);
    // nginx next to both, now after one and now after the other.
    let mut order = [Turn::Unfenced, Turn::Nginx, Turn::Fenced];
    for round in 1..=run.rounds {
        let taken = order.iter().map(|&turn| Ok((turn, site.take(turn)?))).collect::<Outcome<Vec<_>>>()?;
        let of = |wanted| taken.iter().find(|(turn, _)| *turn == wanted).map(|&(_, taken)| taken);
        let of = |turn| of(turn).ok_or("every turn is taken in every round");
        let (ours, locked, theirs) = (of(Turn::Unfenced)?, of(Turn::Fenced)?, of(Turn::Nginx)?);
        run.tell(&format!(
            "round {round}: unfenced {:.0}, fenced {:.0}, nginx {:.0} requests/s",
            ours.per_second, locked.per_second, theirs.per_second
        ));
        unfenced.push((ours, theirs));
        fenced.push((locked, theirs));
        order.reverse();
    }
    let bench = |name, unit, goal, rounds: &[(Taken, Taken)], of: fn(Taken) -> f64| {
        let rounds =
            rounds.iter().map(|&(ours, theirs)| Round { ours: of(ours), theirs: of(theirs) }).collect();
        Bench { name, peer: "nginx proxy_pass", unit, goal, rounds }
    };
    Ok(vec![
        bench("unfenced", "requests/s", Goal::AtLeast(0.95), &unfenced, |taken| taken.per_second),
        bench("unfenced-p99", "ms", Goal::AtMost(1.5), &unfenced, |taken| taken.p99_ms),
        bench("unfenced-cpu", "us/request", Goal::None, &unfenced, |taken| taken.cpu_us),
        bench("fenced-warm", "requests/s", Goal::AtLeast(0.85), &fenced, |taken| taken.per_second),
        bench("fenced-warm-p99", "ms", Goal::None, &fenced, |taken| taken.p99_ms),
        bench("fenced-warm-cpu", "us/request", Goal::None, &fenced, |taken| taken.cpu_us),
    ])
}

impl Site<'_> {
    /// Servers are started for the turn and end with it.
    fn take(&self, turn: Turn) -> Outcome<Taken> {
        if turn == Turn::Nginx {
            let nginx = Nginx::proxy(self.run, self.service.address)?;
            let load = load("/unfenced/");
            load.ask(self.run, nginx.address, WARM_UP)?;
            let before = nginx.cpu_seconds()?;
            let answered = load.ask(self.run, nginx.address, self.run.window)?;
            return Ok(Taken::new(answered, nginx.cpu_seconds()? - before));
        }
        let gateway = Gateway::start(self.run, "gw", self.zookeeper.address(), self.service.address)?;
        let load = load(if turn == Turn::Fenced { "/warm/" } else { "/unfenced/" });
        // Takes every key.
        load.ask(self.run, gateway.public, WARM_UP)?;
        let (before, asked, warm) =
            (gateway.cpu_seconds()?, gateway.acquisitions("warm", "")?, gateway.warm("warm")?);
        let answered = load.ask(self.run, gateway.public, self.run.window)?;
        let taken = Taken::new(answered, gateway.cpu_seconds()? - before);
        if turn == Turn::Fenced {
            let (asked, warm) = (gateway.acquisitions("warm", "")? - asked, gateway.warm("warm")? - warm);
            // The rest found it held by another client.
            if asked < answered.requests || warm < 0.95 * asked {
                return Err(format!("{warm} of {asked} requests found their key warm").into());
            }
        }
        gateway.stop()?;
        Ok(taken)
    }
}

fn load(prefix: &'static str) -> Load {
    Load { method: "GET", prefix, keys: KEYS, threads: 2, clients: 64 }
}

impl Taken {
    fn new(answered: Answered, cpu_seconds: f64) -> Self {
        Self {
            per_second: answered.per_second,
            p99_ms: answered.p99.as_secs_f64() * 1e3,
            cpu_us: cpu_seconds * 1e6 / answered.requests,
        }
    }
}
