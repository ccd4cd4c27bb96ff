//! A relay that acknowledges what it gets and delivers it later, whatever has become of the sender: as a proxy does whose
//! way to the service was cut, or the queue of a machine that stood still.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::patience::patiently;

/// A relay before one server. Works on the runtime of the test that makes it.
pub struct HoldingRelay {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    holds: watch::Sender<bool>,
    /// The bytes of each connection that came while it held.
    held: Mutex<Vec<Vec<u8>>>,
    changed: watch::Sender<usize>,
}

impl HoldingRelay {
    /// # Panics
    /// If there is no free port.
    pub async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
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

    /// New connections are read, and nothing of them is delivered.
    pub fn holds(&self) {
        self.shared.holds.send_replace(true);
    }

    /// New connections are passed on; what is held stays held.
    pub fn passes(&self) {
        self.shared.holds.send_replace(false);
    }

    /// Waits until it holds a whole request that ends with these bytes.
    pub async fn has(&self, end: &[u8]) {
        let mut changed = self.shared.changed.subscribe();
        let found = async {
            while !self.shared.held().iter().any(|bytes| bytes.ends_with(end)) {
                changed.changed().await.expect("the relay lives");
            }
        };
        patiently("a request in the relay", found, || format!("{:?}", self.shared.held())).await;
    }

    /// Delivers what it holds, and gives the answers.
    ///
    /// # Panics
    /// If the server cannot be reached.
    pub async fn delivers(&self) -> Vec<String> {
        let held = std::mem::take(&mut *self.shared.held());
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

impl Shared {
    fn held(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.held.lock().expect("no thread panics here")
    }

    async fn relay(self: Arc<Self>, mut client: TcpStream) {
        if !*self.holds.borrow() {
            if let Ok(mut server) = TcpStream::connect(self.server).await {
                drop(copy_bidirectional(&mut client, &mut server).await);
            }
            return;
        }
        let place = {
            let mut held = self.held();
            held.push(Vec::new());
            held.len() - 1
        };
        let mut piece = [0; 4096];
        while let Ok(read @ 1..) = client.read(&mut piece).await {
            if let Some(bytes) = self.held().get_mut(place) {
                bytes.extend_from_slice(&piece[..read]);
            }
            self.changed.send_modify(|times| *times += 1);
        }
    }
}
