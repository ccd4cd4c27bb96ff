//! Work that is done once and under a lock, compared with other programs for this: Restate, the lock of redis-py, and
//! the lock of etcd.

mod fetched;
mod libraries;
mod restate;

use std::{net::SocketAddr, time::Duration};

use fencegate::demo::zookeeper::PrivateZooKeeper;
use serde_json::{Value, json};

use self::{
    libraries::{Library, Python, Server},
    restate::Published,
};
use crate::{
    gateway::{Behind, Gateway, policy},
    guard::{installation, released::Guard},
    locks::ZOOKEEPER,
    nginx::Nginx,
    outcome::Outcome,
    report::{Bench, Goal, Round},
    run::Run,
    wrk::Load,
};

const CLIENTS: u32 = 64;
const MANY: u32 = 1000;
const WARM_UP: Duration = Duration::from_secs(2);

/// The program that does the work. Each call is one POST that the same service answers with three bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worker {
    /// A gateway and a guard, which remembers each operation and its answer.
    Ours,
    /// Restate promises the same: one call at a time for each key, and each operation at most once.
    Restate,
    /// Lock libraries promise less: nobody compares tokens, and repeated operations are not recognized.
    Library(Library),
}

const WORKERS: [Worker; 4] =
    [Worker::Ours, Worker::Restate, Worker::Library(Library::Redis), Worker::Library(Library::Etcd)];

/// Calls per second.
#[derive(Debug, Clone, Copy)]
struct Done {
    hot: f64,
    many: f64,
}

struct Site<'a> {
    run: &'a Run,
    zookeeper: PrivateZooKeeper,
    ensemble: String,
    service: Nginx,
    restate: Published,
    python: Python,
}

pub(crate) fn measure(run: &Run) -> Outcome<Vec<Bench>> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper-locked"), ZOOKEEPER)?;
    let site = Site {
        run,
        ensemble: installation(run, zookeeper.address())?,
        zookeeper,
        service: Nginx::service(run)?,
        restate: Published::fetched(run)?,
        python: Python::fetched(run)?,
    };
    let mut rounds = Vec::new();
    // The order is reversed in each round.
    let mut order = WORKERS;
    for round in 1..=run.rounds {
        let done = order
            .iter()
            .map(|&worker| Ok((worker, site.done(worker, round)?)))
            .collect::<Outcome<Vec<_>>>()?;
        let told = done.iter().map(|(worker, done)| format!("{worker:?} {:.0}, {:.0}", done.hot, done.many));
        run.tell(&format!("round {round}, hot and many: {}", told.collect::<Vec<_>>().join("; ")));
        rounds.push(done);
        order.reverse();
    }
    Ok(benches(&rounds))
}

fn benches(rounds: &[Vec<(Worker, Done)>]) -> Vec<Bench> {
    let beside = [
        (Worker::Restate, "Restate, a virtual object", ["once-hot", "once-many"], Goal::AtLeast(10.0)),
        (
            Worker::Library(Library::Redis),
            "redis-py Lock and a call",
            ["once-hot-beside-redis", "once-many-beside-redis"],
            Goal::None,
        ),
        (
            Worker::Library(Library::Etcd),
            "a lock of etcd and a call",
            ["once-hot-beside-etcd", "once-many-beside-etcd"],
            Goal::None,
        ),
    ];
    let each = |(worker, peer, [hot, many], goal): (Worker, _, [_; 2], _)| {
        let bench = |name, of: fn(Done) -> f64| Bench {
            name,
            peer,
            unit: "locked calls/s",
            goal,
            rounds: rounds.iter().filter_map(|done| pair(done, worker, of)).collect(),
        };
        [bench(hot, |done| done.hot), bench(many, |done| done.many)]
    };
    beside.into_iter().flat_map(each).collect()
}

/// The results of both in one round. Every worker works in every round.
fn pair(done: &[(Worker, Done)], theirs: Worker, of: fn(Done) -> f64) -> Option<Round> {
    let of = |wanted| done.iter().find(|(worker, _)| *worker == wanted).map(|&(_, done)| of(done));
    Some(Round { ours: of(Worker::Ours)?, theirs: of(theirs)? })
}

impl Site<'_> {
    /// All programs of a worker are started for its turn, with empty stores, and end with it.
    fn done(&self, worker: Worker, round: u32) -> Outcome<Done> {
        let (run, service) = (self.run, self.service.address);
        match worker {
            Worker::Ours => self.ours(round),
            Worker::Restate => {
                let restate = self.restate.start(run, service, round)?;
                asked(run, restate.ingress, "/account/*/pay")
            }
            Worker::Library(library) => {
                let server = Server::start(run, library, round)?;
                let rate = |keys| self.python.rate(run, &server, service, keys, CLIENTS);
                Ok(Done { hot: rate(1)?, many: rate(MANY)? })
            }
        }
    }

    fn ours(&self, round: u32) -> Outcome<Done> {
        let (run, name) = (self.run, format!("once-{round}"));
        let guard = Guard::start(run, &name, self.service.address, &self.ensemble, None)?;
        let mut policy = policy("gw", self.zookeeper.address(), guard.address()?, Behind::Guard);
        policy["routes"].as_array_mut().ok_or("a policy has routes")?.push(once());
        let gateway = Gateway::of(run, &policy)?;
        let done = asked(run, gateway.public, "/once/");
        gateway.stop()?;
        guard.stop()?;
        done
    }
}

/// A route whose operations are remembered by the guard.
pub(crate) fn once() -> Value {
    json!({
        "name": "once",
        "upstream": "service",
        "match": {"methods": ["POST"], "path": "/once/{key}"},
        "fence": {"key": "once/{path.key}", "wait": "30s", "once": {"keep": "1h"}},
    })
}

/// Sends requests that are one operation each.
fn asked(run: &Run, server: SocketAddr, prefix: &'static str) -> Outcome<Done> {
    let rate = |keys| {
        let load = Load { method: "ONCE", prefix, keys, threads: 2, clients: CLIENTS };
        load.ask(run, server, WARM_UP)?;
        Outcome::Ok(load.ask(run, server, run.window)?.per_second)
    };
    Ok(Done { hot: rate(1)?, many: rate(MANY)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_held_against_ours_of_the_same_round() {
        let done = |hot, many| Done { hot, many };
        let theirs = Worker::Library(Library::Redis);
        let round = vec![(theirs, done(10.0, 20.0)), (Worker::Ours, done(30.0, 40.0))];
        let benches = benches(&[round]);
        let of = |name| &benches.iter().find(|bench| bench.name == name).expect("it is told").rounds;
        assert_eq!(*of("once-hot-beside-redis"), [Round { ours: 30.0, theirs: 10.0 }]);
        assert_eq!(*of("once-many-beside-redis"), [Round { ours: 40.0, theirs: 20.0 }]);
        assert_eq!(*of("once-hot"), [], "who did not work is not told");
    }
}
