//! Binds the addresses of a process before they are advertised, and refuses an address at which another
//! process listens.

use std::net::{SocketAddr, TcpListener};

use fencegate_http::network::{
    listen_addr::ListenAddr,
    socket_path_lock::SocketTakeover,
    sockets::{listen_shared, reserve_address},
};
use fencegate_peers as peers;
use fencegate_policies::plan::{self, BindAddress};
use socket2::Socket;
use tracing::info;

use super::error::ProcessError;

/// Binds the admin listener. If `beside`, another gateway that is about to stop may listen at the same
/// address.
pub(super) fn bind_admin(address: SocketAddr, beside: bool) -> Result<TcpListener, ProcessError> {
    let bound = ListenAddr::bind(&BindAddress::Tcp(address), takeover(beside));
    let listener = bound
        .and_then(|_| listen_shared(address))
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|source| ProcessError::Listen {
            listener: "admin".into(),
            address: address.to_string(),
            source,
        })?;
    info!(listener = "admin", address = %listener.local_addr()?, "listening");
    Ok(listener)
}

/// Binds the address for other gateways before it is advertised. The workers listen at it later.
pub(super) fn bind_peer(
    peer: &plan::PeerListenerSettings,
    beside: bool,
) -> Result<(Socket, SocketAddr), ProcessError> {
    let address = peer.address;
    let reserved =
        ListenAddr::bind(&BindAddress::Tcp(address), takeover(beside)).and_then(|_| reserve_address(address));
    let address = address.to_string();
    reserved.map_err(|source| ProcessError::Listen { listener: peers::NAME.into(), address, source })
}

/// Binds the public listener, for all workers.
pub(super) fn bind_public(
    listener: &plan::ListenerSettings,
    beside: bool,
) -> Result<ListenAddr, ProcessError> {
    ListenAddr::bind(&listener.address, takeover(beside)).map_err(|source| {
        let name = listener.name.clone();
        let address = listener.address.to_string();
        match listener.address {
            BindAddress::Tcp(_) => ProcessError::Listen { listener: name, address, source },
            BindAddress::Unix(_) => ProcessError::UnixSocket { listener: name, address, source },
        }
    })
}

/// If `beside`, another gateway that is about to stop may listen at the same address.
fn takeover(beside: bool) -> SocketTakeover {
    if beside { SocketTakeover::FromPredecessor } else { SocketTakeover::Never }
}
