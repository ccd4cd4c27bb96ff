//! A proxy to a server that loses requests and answers.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};

/// Forwards every connection to one server, and cuts the one on which a given text is sent.
pub struct PostgresProxy {
    pub address: SocketAddr,
    plan: Arc<CutPlan>,
    running: JoinHandle<()>,
}

/// The fault of the connection on which the text is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostMessage {
    /// The server never gets it.
    Question,
    /// The server has executed it, and the answer is lost.
    Answer,
}

#[derive(Default)]
struct CutPlan {
    next: Mutex<Option<(Vec<u8>, LostMessage)>>,
    done: Notify,
    /// No connection passes.
    closed: Mutex<bool>,
    close: Notify,
}

impl PostgresProxy {
    /// # Panics
    /// If no port is free.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let plan = Arc::<CutPlan>::default();
        let shared = plan.clone();
        let running = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *shared.closed.lock().unwrap_or_else(PoisonError::into_inner) {
                    continue;
                }
                let plan = shared.clone();
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    let over = plan.close.notified();
                    tokio::select! {
                        () = forward(client, server, &plan) => {}
                        () = over => {}
                    }
                });
            }
        });
        Self { address, plan, running }
    }

    /// The next connection on which a client sends this text gets this fault, and is cut.
    pub fn cut_next(&self, words: &str, lost: LostMessage) {
        *self.plan.next.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((words.as_bytes().to_vec(), lost));
    }

    /// Returns when that has happened.
    pub async fn wait_done(&self) {
        self.plan.done.notified().await;
    }

    /// From now on no connection passes, and open ones are closed.
    pub fn close(&self) {
        *self.plan.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.plan.close.notify_waiters();
    }

    pub fn open(&self) {
        *self.plan.closed.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl CutPlan {
    fn says(&self, bytes: &[u8]) -> Option<LostMessage> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let (words, lost) = next.as_ref()?;
        let said = bytes.windows(words.len()).any(|window| window == words);
        let lost = *lost;
        said.then(|| {
            *next = None;
            lost
        })
    }
}

/// Until either side ends, or what is planned has happened.
async fn forward(mut client: TcpStream, mut server: TcpStream, plan: &CutPlan) {
    let mut asked = vec![0; 1 << 16];
    let mut answered = vec![0; 1 << 16];
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(length @ 1..) = read else { return };
                let lost = plan.says(&asked[..length]);
                if lost == Some(LostMessage::Question) {
                    return plan.done.notify_one();
                }
                if server.write_all(&asked[..length]).await.is_err() {
                    return;
                }
                if lost == Some(LostMessage::Answer) {
                    // It answers when it has committed.
                    drop(server.read(&mut answered).await);
                    return plan.done.notify_one();
                }
            }
            read = server.read(&mut answered) => {
                let Ok(length @ 1..) = read else { return };
                if client.write_all(&answered[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Drop for PostgresProxy {
    fn drop(&mut self) {
        self.running.abort();
        self.plan.close.notify_waiters();
    }
}
