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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    /// What the client says arrives; what the server answers does not.
    Deaf,
    /// Every connection is closed, a new one at once.
    Cut,
}

impl FaultyLink {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = watch::Sender::new(State::Whole);
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
        self.state.send_replace(State::Deaf);
    }

    pub fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// # Panics
    /// If replies were lost and the connections are still open: a stream cannot go on with a hole in it.
    pub fn mend(&self) {
        let before = self.state.send_replace(State::Whole);
        assert_ne!(before, State::Deaf, "cut first");
    }
}

async fn pass(client: TcpStream, server: SocketAddr, mut state: watch::Receiver<State>) -> io::Result<()> {
    if *state.borrow() == State::Cut {
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
            if *heard.borrow() == State::Whole {
                to_client.write_all(&bytes[..count]).await?;
            }
        }
    };
    tokio::select! {
        ended = copy(&mut client_says, &mut to_server) => ended.map(drop),
        ended = down => ended,
        _cut = state.wait_for(|state| *state == State::Cut) => Ok(()),
    }
}
