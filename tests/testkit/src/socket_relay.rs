//! Leads connections from a port to a unix socket, and from a unix socket to a port.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::JoinHandle,
};

/// Works on the runtime of the test that makes it, until it is dropped.
pub struct SocketRelay(JoinHandle<io::Result<()>>);

impl SocketRelay {
    /// A port that leads to the socket at this path, whichever process listens there.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn to_socket(path: &Path) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let path = PathBuf::from(path);
        let running = tokio::spawn(async move {
            loop {
                let mut client = listener.accept().await?.0;
                let path = path.clone();
                client.set_nodelay(true)?;
                tokio::spawn(async move {
                    let mut server = UnixStream::connect(path).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        (Self(running), address)
    }

    /// A service that listens on a socket: connections to this path are forwarded to `service`.
    ///
    /// # Panics
    /// If another process listens there.
    pub fn from_socket(path: &Path, service: SocketAddr) -> Self {
        let listener = UnixListener::bind(path).expect("a free path");
        Self(tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await?;
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(service).await?;
                    server.set_nodelay(true)?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        }))
    }
}

impl Drop for SocketRelay {
    fn drop(&mut self) {
        self.0.abort();
    }
}
