//! Sockets behind small traits, so that a simulation can bring its own network.

use std::{
    future::Future,
    io,
    net::{self, SocketAddr},
    time::Duration,
};

use futures_util::FutureExt;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest},
    net::{TcpListener, TcpStream, lookup_host},
};

use crate::peer::Peer;

/// Dials and listens.
pub trait Network: Clone + 'static {
    type Stream: AsyncRead + AsyncWrite + Reset + Unpin + 'static;
    type Listener: Accept<Stream = Self::Stream>;

    /// Where `host:port` is. No time limit of its own.
    fn resolve(&self, authority: &str) -> impl Future<Output = io::Result<Vec<SocketAddr>>>;

    /// Connects. No time limit of its own.
    fn dial(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Stream>>;

    /// Listens beside others on the same address, each of which gets its share of the connections.
    fn listen(&self, address: SocketAddr) -> io::Result<Self::Listener>;
}

/// A listening socket.
pub trait Accept: 'static {
    type Stream;

    /// The next connection, and its two ends.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>>;
    fn address(&self) -> io::Result<SocketAddr>;
}

/// Ends without a farewell.
pub trait Reset {
    /// From now on closing discards what the kernel has not sent yet and tells the peer with a reset.
    fn reset_on_close(&self);

    /// The peer has ended its side, whether or not what it sent before was read. One whose last bytes we leave no room
    /// for is not found out: its end comes behind them.
    fn has_hung_up(&self) -> bool {
        false
    }
}

/// The real network.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

impl Network for Tcp {
    type Stream = TcpStream;
    type Listener = TcpListener;

    async fn resolve(&self, authority: &str) -> io::Result<Vec<SocketAddr>> {
        // As every other program of the machine does: `/etc/hosts`, name servers, whatever else it is set up for.
        Ok(lookup_host(authority).await?.collect())
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::from_std(shared_socket(address)?)
    }
}

/// Listens where others of the same user may listen, too.
///
/// # Errors
/// Somebody listens there without sharing, or the address is not one of this machine's.
pub fn shared_socket(address: SocketAddr) -> io::Result<net::TcpListener> {
    let socket = shareable(address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Keeps an address for those who will listen on it, without listening.
///
/// # Errors
/// As of [`shared_socket`].
pub fn reserved(address: SocketAddr) -> io::Result<(Socket, SocketAddr)> {
    let socket = shareable(address)?;
    let bound = socket.local_addr()?.as_socket();
    Ok((socket, bound.ok_or(io::ErrorKind::AddrNotAvailable)?))
}

fn shareable(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Connections that the kernel completes before we take them.
pub const BACKLOG: i32 = 1024;

/// Bytes of an answer that the kernel takes before it can send them. Left to itself it takes megabytes for each client,
/// however slowly that reads: a thousand of them would cost gigabytes, and seconds of nothing but copying.
const UNSENT: u32 = 128 << 10;

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, address) = TcpListener::accept(self).await?;
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT)?;
        let local = stream.local_addr()?;
        Ok((stream, Peer { address, local, tls: None }))
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

impl Reset for TcpStream {
    fn reset_on_close(&self) {
        // Fails only on a socket that is closed already.
        drop(SockRef::from(self).set_linger(Some(Duration::ZERO)));
    }

    fn has_hung_up(&self) -> bool {
        let known = self.ready(Interest::READABLE).now_or_never();
        known.is_some_and(|ready| ready.is_ok_and(|ready| ready.is_read_closed()))
    }
}

/// A pipe in memory, for tests and simulations: nobody sees how it ends.
impl Reset for tokio::io::DuplexStream {
    fn reset_on_close(&self) {}
}
