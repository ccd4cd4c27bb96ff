//! The sockets of this machine: TCP and unix sockets.

use std::{
    cell::Cell,
    io,
    net::{self, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream, lookup_host},
    time::sleep,
};

use super::{
    Accept, ConnectTarget, Network,
    listen_addr::{ListenAddr, SharedUnixListener},
    socket_path_lock::BACKLOG,
    socket_stream::SocketStream,
};
use crate::connection_info::ConnectionInfo;

/// The network of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsNetwork;

/// The listener of one worker.
#[derive(Debug)]
pub enum SocketListener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        shared: Arc<SharedUnixListener>,
        /// The number of connections that this worker has accepted.
        mine: Cell<usize>,
    },
}

impl Network for OsNetwork {
    type Stream = SocketStream;
    type Listener = SocketListener;

    async fn resolve(&self, authority: &str) -> io::Result<Vec<ConnectTarget>> {
        // This is the lookup of the system, with `/etc/hosts` and name servers, which other programs of the machine
        // use as well.
        Ok(lookup_host(authority).await?.map(ConnectTarget::Tcp).collect())
    }

    async fn dial(&self, remote: &ConnectTarget) -> io::Result<SocketStream> {
        let path = match remote {
            ConnectTarget::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                return Ok(SocketStream::Tcp(stream));
            }
            ConnectTarget::Unix(path) => path,
        };
        loop {
            match UnixStream::connect(path).await {
                // The queue of the socket is full. For TCP the kernel would try again; for a unix socket this loop
                // does.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(TRY_AGAIN).await,
                connected => return connected.map(SocketStream::Unix),
            }
        }
    }

    fn listen(&self, local: &ListenAddr) -> io::Result<SocketListener> {
        match local {
            ListenAddr::Tcp(address) => {
                Ok(SocketListener::Tcp(TcpListener::from_std(listen_shared(*address)?)?))
            }
            ListenAddr::Unix(shared) => {
                let listener = UnixListener::from_std(shared.add_worker_listener()?)?;
                Ok(SocketListener::Unix { listener, shared: shared.clone(), mine: Cell::new(0) })
            }
        }
    }
}

const TRY_AGAIN: Duration = Duration::from_millis(5);

/// Listens at an address that further sockets of the same user may share.
///
/// # Errors
/// Returns an error if another process listens there without sharing, or if the address is not one of this machine's.
pub fn listen_shared(address: SocketAddr) -> io::Result<net::TcpListener> {
    let socket = bind_shared(address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Reserves an address for later listeners, without listening.
///
/// # Errors
/// Returns an error in the same cases as [`listen_shared`].
pub fn reserve_address(address: SocketAddr) -> io::Result<(Socket, SocketAddr)> {
    let socket = bind_shared(address)?;
    let bound = socket.local_addr()?.as_socket();
    Ok((socket, bound.ok_or(io::ErrorKind::AddrNotAvailable)?))
}

fn bind_shared(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// The most unsent bytes of a connection in the kernel. By default the kernel takes megabytes for each client, also
/// for a slow one. For a thousand clients that would cost gigabytes, and seconds of copying.
const UNSENT: u32 = 128 << 10;

/// The address that stands for every client of a unix socket, which has none.
const THIS_MACHINE: SocketAddr = SocketAddr::new(net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How long a worker with more than its share waits, so that other workers can accept.
const HEAD_START: Duration = Duration::from_millis(1);

impl Accept for SocketListener {
    type Stream = SocketStream;

    async fn accept(&self) -> io::Result<(SocketStream, ConnectionInfo)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT)?;
                let local = stream.local_addr()?;
                Ok((SocketStream::Tcp(stream), ConnectionInfo::new(address, local)))
            }
            Self::Unix { listener, shared, mine } => {
                if shared.is_worker_over_share(mine.get()) {
                    sleep(HEAD_START).await;
                }
                let stream = SocketStream::Unix(listener.accept().await?.0);
                mine.set(mine.get() + 1);
                shared.record_accept();
                Ok((stream, ConnectionInfo::new(THIS_MACHINE, THIS_MACHINE)))
            }
        }
    }

    fn listen_addr(&self) -> io::Result<ListenAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(ListenAddr::Tcp),
            Self::Unix { shared, .. } => Ok(ListenAddr::Unix(shared.clone())),
        }
    }

    fn stop_accepting(&self) {
        match self {
            Self::Tcp(_) => {}
            Self::Unix { shared, .. } => shared.start_drain(),
        }
    }
}

#[cfg(test)]
mod tests {
    use fencegate_policies::plan::{BindAddress, UnixSocketFile};
    use futures_util::future::join_all;

    use super::*;
    use crate::network::socket_path_lock::SocketTakeover;

    /// Workers share connections that arrive at once, and a connection that was queued before the stop is still
    /// accepted.
    #[tokio::test]
    async fn workers_share_connections_and_lose_none() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("s");
        let file = UnixSocketFile { path: path.clone(), mode: 0o600 };
        let bound = ListenAddr::bind(&BindAddress::Unix(file), SocketTakeover::Never).expect("free");
        assert_eq!(bound.to_string(), format!("unix:{}", path.display()));
        let workers = [0; 2].map(|_| OsNetwork.listen(&bound).expect("ours"));
        let remote = ConnectTarget::Unix(path.clone().into());
        let clients = join_all((0..40).map(|_| OsNetwork.dial(&remote))).await;
        assert!(clients.iter().all(Result::is_ok), "the kernel holds them");
        let each = workers.iter().map(async |worker| {
            let mut streams = Vec::new();
            // The worker yields after each connection, as a busy one does, so that the others can accept the next
            // one.
            while let Ok(accepted) = tokio::time::timeout(HEAD_START * 20, worker.accept()).await {
                streams.push(accepted.expect("accepted"));
                tokio::task::yield_now().await;
            }
            streams.len()
        });
        let counts = join_all(each).await;
        assert_eq!(counts.iter().sum::<usize>(), 40);
        assert!(counts.iter().all(|count| *count >= 10), "{counts:?}");
        let _late = OsNetwork.dial(&remote).await.expect("connected");
        workers[0].stop_accepting();
        assert!(!path.exists());
        OsNetwork.dial(&remote).await.expect_err("nobody finds it");
        // After the stop, any worker accepts the queued connection, also the one that has more than its share.
        tokio::task::yield_now().await;
        let most = if counts[0] >= counts[1] { 0 } else { 1 };
        let (_, peer) = workers[most].accept().await.expect("it has come in time");
        assert_eq!(peer.address, THIS_MACHINE);
    }

    /// A connect to a socket with a full queue waits until the queue has a free position.
    #[tokio::test]
    async fn dial_waits_while_queue_is_full() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("s");
        let full = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        full.bind(&socket2::SockAddr::unix(&path).expect("short")).expect("bound");
        full.listen(0).expect("listens");
        let remote = ConnectTarget::Unix(path.into());
        let _first = OsNetwork.dial(&remote).await.expect("there is room for one");
        let second = tokio::spawn(async move { OsNetwork.dial(&remote).await.map(drop) });
        sleep(TRY_AGAIN * 4).await;
        assert!(!second.is_finished(), "it waits");
        full.accept().expect("the first");
        second.await.expect("no panic").expect("there is room again");
    }
}
