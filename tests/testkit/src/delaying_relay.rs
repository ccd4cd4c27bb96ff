//! A relay that acknowledges requests and delivers them later, whatever has become of the sender: like a proxy that was
//! cut off from the service, or the queue of a machine that was paused.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};
use tokio_util::task::AbortOnDropHandle;

use crate::wait::wait_until;

/// A relay before one server. Works on the runtime of the test that makes it.
pub struct DelayingRelay {
    pub address: SocketAddr,
    shared: Arc<RelayState>,
}

struct RelayState {
    server: SocketAddr,
    holds: watch::Sender<bool>,
    /// The bytes of each connection that came while it held. None is ever removed, so that places stay right.
    held: Mutex<Vec<Vec<u8>>>,
    changed: watch::Sender<usize>,
}

impl DelayingRelay {
    /// # Panics
    /// If there is no free port.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(RelayState {
            server,
            holds: watch::Sender::new(false),
            held: Mutex::default(),
            changed: watch::Sender::new(0),
        });
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serving.clone().relay(client));
            }
        });
        Self { address, shared }
    }

    /// What comes is read, and nothing of it is delivered.
    pub fn hold(&self) {
        self.shared.holds.send_replace(true);
    }

    /// New connections are passed on; what is held stays held, and so do its connections.
    pub fn pass_through(&self) {
        self.shared.holds.send_replace(false);
    }

    /// Waits until it holds a whole request that ends with these bytes.
    pub async fn wait_received(&self, end: &[u8]) {
        let mut changed = self.shared.changed.subscribe();
        let found = async {
            while !self.shared.held().iter().any(|bytes| bytes.ends_with(end)) {
                changed.changed().await.expect("the relay lives");
            }
        };
        wait_until("a request in the relay", found, || format!("{:?}", self.shared.held())).await;
    }

    /// Waits until it holds something on so many connections.
    pub async fn wait_held(&self, connections: usize) {
        let mut changed = self.shared.changed.subscribe();
        let filled = || self.shared.held().iter().filter(|bytes| !bytes.is_empty()).count();
        let found = async {
            while filled() < connections {
                changed.changed().await.expect("the relay lives");
            }
        };
        wait_until("requests in the relay", found, || format!("{} connections", filled())).await;
    }

    /// Delivers what it holds on new connections, and gives the answers.
    ///
    /// # Panics
    /// If the server cannot be reached.
    pub async fn deliver(&self) -> Vec<String> {
        let held: Vec<_> = self.shared.held().iter_mut().map(std::mem::take).collect();
        let mut answers = Vec::new();
        for bytes in held.into_iter().filter(|bytes| !bytes.is_empty()) {
            let mut server = TcpStream::connect(self.shared.server).await.expect("the server listens");
            server.write_all(&bytes).await.expect("it reads");
            let mut answer = Vec::new();
            let mut piece = [0; 4096];
            while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
                match server.read(&mut piece).await {
                    Ok(read @ 1..) => answer.extend_from_slice(&piece[..read]),
                    _ => break,
                }
            }
            answers.push(String::from_utf8_lossy(&answer).into_owned());
        }
        answers
    }
}

impl RelayState {
    fn held(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.held.lock().expect("no thread panics here")
    }

    async fn relay(self: Arc<Self>, client: TcpStream) {
        let (mut from_client, to_client) = client.into_split();
        let (first, answers) = if *self.holds.borrow() {
            (Vec::new(), None)
        } else {
            let Some((first, answers)) = self.relay_until_held(&mut from_client, to_client).await else {
                return;
            };
            (first, Some(answers))
        };
        let place = {
            let mut held = self.held();
            held.push(first);
            held.len() - 1
        };
        self.changed.send_modify(|times| *times += 1);
        let mut piece = [0; 4096];
        while let Ok(read @ 1..) = from_client.read(&mut piece).await {
            self.held()[place].extend_from_slice(&piece[..read]);
            self.changed.send_modify(|times| *times += 1);
        }
        drop(answers);
    }

    /// Passes on what a connection brings while the relay does not hold. Gives the bytes that came when it did, and what
    /// still passes answers on. None: the connection has ended before.
    async fn relay_until_held(
        &self,
        from_client: &mut OwnedReadHalf,
        mut to_client: OwnedWriteHalf,
    ) -> Option<(Vec<u8>, AbortOnDropHandle<()>)> {
        let (mut from_server, mut to_server) = TcpStream::connect(self.server).await.ok()?.into_split();
        let answers = AbortOnDropHandle::new(tokio::spawn(async move {
            drop(copy(&mut from_server, &mut to_client).await);
        }));
        let mut piece = [0; 4096];
        loop {
            let read = from_client.read(&mut piece).await.ok().filter(|read| *read > 0)?;
            if *self.holds.borrow() {
                return Some((piece[..read].to_vec(), answers));
            }
            to_server.write_all(&piece[..read]).await.ok()?;
        }
    }
}
