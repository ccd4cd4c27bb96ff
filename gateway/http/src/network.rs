//! Sockets behind small traits, so that a simulation can bring its own network.

pub mod bound;
pub mod remote;
pub mod socket_stream;
pub mod sockets;
pub mod taken_path;

use std::{future::Future, io};

use tokio::io::{AsyncRead, AsyncWrite};

use self::{bound::Bound, remote::Remote};
use crate::peer::Peer;

/// Dials and listens.
pub trait Network: Clone + 'static {
    type Stream: AsyncRead + AsyncWrite + Reset + Unpin + 'static;
    type Listener: Accept<Stream = Self::Stream>;

    /// Where `host:port` is, which may come from somebody else: never a socket of this machine by its path. No time limit of
    /// its own.
    fn resolve(&self, authority: &str) -> impl Future<Output = io::Result<Vec<Remote>>>;

    /// Connects. No time limit of its own.
    fn dial(&self, remote: &Remote) -> impl Future<Output = io::Result<Self::Stream>>;

    /// Listens beside others on the same place, each of which gets its share of the connections.
    fn listen(&self, place: &Bound) -> io::Result<Self::Listener>;
}

/// A listening socket.
pub trait Accept: 'static {
    type Stream;

    /// The next connection, and its two ends.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>>;

    /// Where it listens, as others may listen there, too.
    fn place(&self) -> io::Result<Bound>;

    /// Who has not come by now shall find nobody. Who has come is accepted still.
    fn closes(&self);
}

/// Ends without a farewell.
pub trait Reset {
    /// From now on closing discards what the kernel has not sent yet and tells the peer with a reset, where the socket can
    /// do that.
    fn reset_on_close(&self);

    /// The peer has ended its side, whether or not what it sent before was read. One whose last bytes we leave no room
    /// for is not found out: its end comes behind them.
    fn has_hung_up(&self) -> bool {
        false
    }
}

/// A pipe in memory, for tests and simulations: nobody sees how it ends.
impl Reset for tokio::io::DuplexStream {
    fn reset_on_close(&self) {}
}
