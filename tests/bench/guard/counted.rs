//! The number of instructions in user space that a guard needs per request of an announced tenure. They are counted as
//! for a gateway.

use fencegate::demo::zookeeper::PrivateZooKeeper;

use super::{installation, released::Guard};
use crate::{
    gateway::{Behind, Gateway, policy},
    instructions::{Counter, LOAD},
    locks::ZOOKEEPER,
    nginx::Nginx,
    outcome::Outcome,
    report::{Bench, Goal, Round},
    run::Run,
    wrk::Load,
};

/// Measures with unix sockets on both sides, and with ports.
pub(crate) fn measure(run: &Run) -> Outcome<Vec<Bench>> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper-guard-counted"), ZOOKEEPER)?;
    let service = Nginx::service(run)?;
    let ensemble = installation(run, zookeeper.address())?;
    let counted = |name: &str, listen: &str, endpoint: &str| {
        let counter = Counter::named(run, name);
        let guard = Guard::by(run, &counter.of(&run.gateway()), name, (listen, endpoint), &ensemble)?;
        let mut policy = policy("gw-counted", zookeeper.address(), service.address, Behind::Guard);
        policy["upstreams"]["service"]["endpoints"] = [guard.endpoint.as_str()].as_slice().into();
        // A guard is slow while its instructions are counted.
        policy["upstreams"]["service"]["response_timeout"] = "45s".into();
        let gateway = Gateway::of(run, &policy)?;
        let count = counter.count(run, guard.pid(), gateway.public, Load { prefix: "/warm/", ..LOAD })?;
        gateway.stop()?;
        guard.stop()?;
        Outcome::Ok(count)
    };
    let socket = format!("unix:{}", run.folder().join("counted.sock").display());
    let theirs = counted("guard-counted", "127.0.0.1:0", &format!("http://{}", service.address))?;
    let ours = counted("guard-counted-unix", &socket, &service.socket)?;
    Ok(vec![Bench {
        name: "guard-instructions-unix",
        peer: "the same by ports",
        unit: "instructions/request",
        goal: Goal::None,
        rounds: vec![Round { ours, theirs }],
    }])
}
