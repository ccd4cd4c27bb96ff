//! Takes the addresses of a process before anybody is told of them, and refuses those that belong to another process.

use std::net::{SocketAddr, TcpListener};

use fencegate_http::network::{
    bound::Bound,
    sockets::{reserved, shared_socket},
    taken_path::Takeover,
};
use fencegate_policies::plan::{self, Bind};
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
    let bound = Bound::take(&Bind::Tcp(address), takeover(beside));
    let listener = bound
        .and_then(|_| shared_socket(address))
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|source| NotServing::Listen {
            listener: "admin".into(),
            address: address.to_string(),
            source,
        })?;
    info!(listener = "admin", address = %listener.local_addr()?, "listening");
    Ok(listener)
}

/// Keeps the address at which other gateways reach us, before they are told of it: the workers listen there later.
pub(super) fn reserve(peer: &plan::PeerListener, beside: bool) -> Result<(Socket, SocketAddr), NotServing> {
    let address = peer.address;
    let kept = Bound::take(&Bind::Tcp(address), takeover(beside)).and_then(|_| reserved(address));
    let address = address.to_string();
    kept.map_err(|source| NotServing::Listen { listener: siblings::NAME.into(), address, source })
}

/// Takes the place of the public listener, for all workers.
pub(super) fn public(listener: &plan::Listener, beside: bool) -> Result<Bound, NotServing> {
    Bound::take(&listener.address, takeover(beside)).map_err(|source| {
        let (name, address) = (listener.name.clone(), listener.address.to_string());
        match listener.address {
            Bind::Tcp(_) => NotServing::Listen { listener: name, address, source },
            Bind::Unix(_) => NotServing::UnixSocket { listener: name, address, source },
        }
    })
}

/// `beside`: another gateway may listen there, which is about to stop.
fn takeover(beside: bool) -> Takeover {
    if beside { Takeover::FromTheOneBefore } else { Takeover::Never }
}
