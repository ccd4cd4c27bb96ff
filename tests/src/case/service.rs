//! The service behind a proxy under test. It records each request as it arrived, and answers with the bytes that it was
//! given.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

use super::ScriptedResponse;
use crate::wire::{MessageReader, MissingLengthMeaning, WireMessage};

/// Dropping it ends it.
pub struct ScriptedService {
    pub address: SocketAddr,
    /// A second address of the same service. Gateways take it for another service.
    pub other: SocketAddr,
    shared: Arc<ServiceState>,
    running: JoinHandle<()>,
}

#[derive(Default)]
struct ServiceState {
    answers: Mutex<VecDeque<ScriptedResponse>>,
    requests: watch::Sender<Vec<ReceivedRequest>>,
}

/// One request, as far as it came.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub message: WireMessage,
    /// The body arrived in full.
    pub whole: bool,
}

impl ScriptedService {
    /// # Panics
    /// If no port is free.
    pub async fn start() -> Self {
        let (listener, address) = bind_listener().await;
        let (beside, other) = bind_listener().await;
        let shared = Arc::<ServiceState>::default();
        let serving = shared.clone();
        let running = tokio::spawn(async move {
            while let Ok((stream, _)) = tokio::select! {
                taken = listener.accept() => taken,
                taken = beside.accept() => taken,
            } {
                let shared = serving.clone();
                // A request that a proxy breaks off stays in the record, as far as it arrived.
                tokio::spawn(async move { drop(shared.converse(stream).await) });
            }
        });
        Self { address, other, shared, running }
    }

    /// Sets the answers to the next requests, in their order. Every later request gets a 200.
    pub fn queue_answers(&self, answers: impl IntoIterator<Item = ScriptedResponse>) {
        *self.shared.answers() = answers.into_iter().collect();
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.requests.borrow().clone()
    }

    /// Waits until so many requests have begun.
    ///
    /// # Panics
    /// Never: the service outlives its callers.
    pub async fn wait_requests(&self, count: usize) {
        let mut requests = self.shared.requests.subscribe();
        requests.wait_for(|requests| requests.len() >= count).await.expect("the service lives");
    }
}

async fn bind_listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

impl Drop for ScriptedService {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl ServiceState {
    fn answers(&self) -> MutexGuard<'_, VecDeque<ScriptedResponse>> {
        self.answers.lock().expect("no thread panics here")
    }

    async fn converse(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let (input, mut output) = stream.into_split();
        let mut reader = MessageReader::new(input, |_| {});
        while reader.wait_first_byte().await? {
            let mut message = reader.read_head().await?;
            let number = self.open(message.clone());
            let answer = self.answers().pop_front().unwrap_or_default();
            if answer.early {
                output.write_all(&response_bytes(&answer, &message)).await?;
            }
            reader.read_body(&mut message, MissingLengthMeaning::Empty).await?;
            self.requests.send_modify(|requests| {
                requests[number] = ReceivedRequest { message: message.clone(), whole: true };
            });
            if !answer.early {
                output.write_all(&response_bytes(&answer, &message)).await?;
            }
            if answer.closes {
                break;
            }
        }
        Ok(())
    }

    fn open(&self, message: WireMessage) -> usize {
        let mut number = 0;
        self.requests.send_modify(|requests| {
            number = requests.len();
            requests.push(ReceivedRequest { message, whole: false });
        });
        number
    }
}

fn response_bytes(answer: &ScriptedResponse, request: &WireMessage) -> Vec<u8> {
    let usual = if request.word(0) == "HEAD" { USUAL_HEAD.to_vec() } else { [USUAL_HEAD, b"ok"].concat() };
    answer.bytes.clone().unwrap_or(usual)
}

const USUAL_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
