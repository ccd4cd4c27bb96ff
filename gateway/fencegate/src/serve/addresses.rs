//! Takes the addresses of a process before anybody is told of them, and refuses those that belong to another process.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use fencegate_http::network::{reserved, shared_socket};
use fencegate_policies::plan;
use socket2::Socket;
use tracing::info;

use super::not_serving::NotServing;
use crate::siblings;

/// What this machine calls itself: the name of a gateway whose policy does not say one.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Listens for operators. `beside`: another gateway may listen there, which is about to stop.
pub(super) fn bind_admin(address: SocketAddr, beside: bool) -> Result<TcpListener, NotServing> {
    let bound = unless_beside(beside, address);
    let listener = bound
        .and_then(|()| shared_socket(address))
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|source| NotServing::Listen { listener: "admin".into(), address, source })?;
    info!(listener = "admin", address = %listener.local_addr()?, "listening");
    Ok(listener)
}

/// Keeps the address at which other gateways reach us, before they are told of it: the workers listen there later.
pub(super) fn reserve(peer: &plan::PeerListener, beside: bool) -> Result<(Socket, SocketAddr), NotServing> {
    let address = peer.address;
    let kept = unless_beside(beside, address).and_then(|()| reserved(address));
    kept.map_err(|source| NotServing::Listen { listener: siblings::NAME.into(), address, source })
}

/// Fails where another process has the address.
///
/// The workers share their address among each other, and would share it with another gateway of the same user as well:
/// half of the connections would go to the wrong process. So the address has to be nobody's, unless the other gateway
/// is about to stop (`beside`).
pub(super) fn unless_beside(beside: bool, address: SocketAddr) -> io::Result<()> {
    if beside { Ok(()) } else { TcpListener::bind(address).map(drop) }
}
