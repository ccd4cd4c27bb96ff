//! A TCP connection to one server that can be cut and plugged in again.

use std::{
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::spawn_local,
};

/// Dropping it leaves its tasks to their runtime.
#[derive(Debug)]
pub(super) struct TcpCable {
    address: SocketAddr,
    plugged: watch::Sender<bool>,
}

impl TcpCable {
    /// Call it inside a `LocalSet`.
    pub(super) fn start(server: SocketAddr) -> Self {
        let bound = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        bound.set_nonblocking(true).expect("a listener can be switched");
        let address = bound.local_addr().expect("bound above");
        let plugged = watch::Sender::new(true);
        let listener = TcpListener::from_std(bound).expect("inside a runtime");
        spawn_local(accept(listener, server, plugged.subscribe()));
        Self { address, plugged }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes every connection, and each new one at once.
    pub(super) fn cut(&self) {
        self.plugged.send_replace(false);
    }

    pub(super) fn plug(&self) {
        self.plugged.send_replace(true);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, plugged: watch::Receiver<bool>) {
    let plugged = Rc::new(plugged);
    while let Ok((client, _)) = listener.accept().await {
        if *plugged.borrow() {
            spawn_local(pass(client, server, (*plugged).clone()));
        }
    }
}

async fn pass(mut client: TcpStream, server: SocketAddr, mut plugged: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    // Without it each small request waits for an acknowledgement.
    if client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).is_err() {
        return;
    }
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = plugged.wait_for(|plugged| !plugged) => {}
    }
}
