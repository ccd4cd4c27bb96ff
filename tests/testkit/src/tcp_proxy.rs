//! A proxy to one server: broken, or open and silent, for any protocol.

use std::net::SocketAddr;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    select,
    sync::watch,
};

/// Works on the runtime of the test that makes it.
pub struct TcpProxy {
    pub address: SocketAddr,
    /// How often all connections were broken.
    breaks: watch::Sender<u64>,
    silent: watch::Sender<bool>,
}

impl TcpProxy {
    /// # Panics
    /// If there is no free port.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let breaks = watch::Sender::new(0);
        let silent = watch::Sender::new(false);
        let breaking = breaks.subscribe();
        let silence = silent.subscribe();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server, breaking.clone(), silence.clone()));
            }
        });
        Self { address, breaks, silent }
    }

    /// All connections end, and new ones are made.
    pub fn break_all(&self) {
        self.breaks.send_modify(|times| *times += 1);
    }

    /// Connections stay open, and nothing passes; afterwards they are broken, because a stream cannot go on with a hole in it.
    pub fn set_silent(&self, silent: bool) {
        self.silent.send_replace(silent);
        if !silent {
            self.break_all();
        }
    }
}

async fn pass(
    mut client: TcpStream,
    server: SocketAddr,
    mut breaks: watch::Receiver<u64>,
    mut silent: watch::Receiver<bool>,
) {
    breaks.mark_unchanged();
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    select! {
        _ = copy_bidirectional(&mut client, &mut server) => return,
        _ = breaks.changed() => return,
        _ = silent.wait_for(|silent| *silent) => {}
    }
    // Both ends stay open for as long as nothing passes.
    drop(breaks.changed().await);
}
