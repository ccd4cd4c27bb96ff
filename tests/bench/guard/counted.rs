//! How many instructions of user space a guard costs per request of a tenure that has been announced: counted as those of a
//! gateway are.

use std::net::SocketAddr;

use super::{installation, released::Guard};
use crate::{
    gateway::{Behind, Gateway, policy},
    instructions::{Counter, LOAD},
    nginx::Nginx,
    outcome::Outcome,
    run::Run,
    wrk::Load,
};

/// Of one request, on an average, by a port and by unix sockets on both sides.
pub(crate) fn instructions(run: &Run, zookeeper: SocketAddr, service: &Nginx) -> Outcome<[f64; 2]> {
    let ensemble = installation(run, zookeeper)?;
    let counted = |name: &str, listen: &str, endpoint: &str| {
        let counter = Counter::named(run, name);
        let guard = Guard::by(run, &counter.of(&run.gateway()), name, (listen, endpoint), &ensemble)?;
        let mut policy = policy("gw-counted", zookeeper, service.address, Behind::Guard);
        policy["upstreams"]["service"]["endpoints"] = [guard.endpoint.as_str()].as_slice().into();
        // A guard that is counted is slow.
        policy["upstreams"]["service"]["response_timeout"] = "45s".into();
        let gateway = Gateway::of(run, &policy)?;
        let count = counter.count(run, guard.pid(), gateway.public, Load { prefix: "/warm/", ..LOAD })?;
        gateway.stop()?;
        guard.stop()?;
        Outcome::Ok(count)
    };
    let socket = format!("unix:{}", run.folder().join("counted.sock").display());
    Ok([
        counted("guard-counted", "127.0.0.1:0", &format!("http://{}", service.address))?,
        counted("guard-counted-unix", &socket, &service.socket)?,
    ])
}
