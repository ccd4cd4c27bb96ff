//! A TCP connection to ZooKeeper that breaks on demand, with or without the server's last words.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Stands between one gateway and its ZooKeeper. Works on the runtime of the test that makes it.
pub struct FaultyLink {
    address: SocketAddr,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    passes: Passes,
    /// A connection is closed when this is no longer what it was at its beginning, so that a cut is not missed however
    /// short it is.
    cuts: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passes {
    Everything,
    /// What the client says arrives; what the server answers does not.
    ToServer,
    /// A new connection is closed at once.
    Nothing,
}

impl FaultyLink {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = watch::Sender::new(State { passes: Passes::Everything, cuts: 0 });
        let seen = state.subscribe();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server, seen.clone()));
            }
        });
        Self { address, state }
    }

    /// Where to connect instead of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on the server is obeyed and not heard.
    pub fn lose_replies(&self) {
        self.state.send_modify(|state| state.passes = Passes::ToServer);
    }

    /// Closes every connection.
    pub fn cut(&self) {
        self.state.send_modify(|state| *state = State { passes: Passes::Nothing, cuts: state.cuts + 1 });
    }

    /// # Panics
    /// If replies were lost and the connections are still open: a stream cannot go on with a hole in it.
    pub fn mend(&self) {
        assert_ne!(self.state.borrow().passes, Passes::ToServer, "cut first");
        self.state.send_modify(|state| state.passes = Passes::Everything);
    }
}

async fn pass(client: TcpStream, server: SocketAddr, mut state: watch::Receiver<State>) -> io::Result<()> {
    let State { passes, cuts } = *state.borrow();
    if passes == Passes::Nothing {
        return Ok(());
    }
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut client_says, mut to_client) = client.into_split();
    let (mut server_says, mut to_server) = server.into_split();
    let heard = state.clone();
    let down = async {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let count = server_says.read(&mut bytes).await?;
            if count == 0 {
                return Ok(());
            }
            if heard.borrow().passes == Passes::Everything {
                to_client.write_all(&bytes[..count]).await?;
            }
        }
    };
    tokio::select! {
        ended = copy(&mut client_says, &mut to_server) => ended.map(drop),
        ended = down => ended,
        _cut = state.wait_for(|state| state.cuts != cuts) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{origin::Origin, patience::QUIET};

    const ASK: &[u8] = b"GET /a HTTP/1.1\r\n\r\n";

    async fn one_byte(stream: &mut TcpStream) -> io::Result<usize> {
        stream.read(&mut [0; 1]).await
    }

    #[tokio::test]
    async fn a_cut_closes_what_is_open_however_soon_it_is_mended() {
        let origin = Origin::start();
        let link = FaultyLink::to(origin.door("a")).await;
        let mut old = TcpStream::connect(link.address()).await.expect("listens");
        old.write_all(ASK).await.expect("open");
        assert_eq!(one_byte(&mut old).await.expect("an answer"), 1);
        link.cut();
        link.mend();
        while one_byte(&mut old).await.is_ok_and(|count| count > 0) {}
        let mut new = TcpStream::connect(link.address()).await.expect("listens");
        new.write_all(ASK).await.expect("open");
        assert_eq!(one_byte(&mut new).await.expect("an answer"), 1);
    }

    #[tokio::test]
    async fn lost_replies_are_lost_and_requests_arrive() {
        let origin = Origin::start();
        let link = FaultyLink::to(origin.door("a")).await;
        let mut stream = TcpStream::connect(link.address()).await.expect("listens");
        link.lose_replies();
        stream.write_all(ASK).await.expect("open");
        origin.request("/a", 1).await;
        tokio::time::timeout(QUIET, one_byte(&mut stream)).await.expect_err("nothing is heard");
    }
}
