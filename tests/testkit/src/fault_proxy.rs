//! A proxy between two processes, for any protocol: it breaks connections, falls silent, loses a message, delivers
//! late, or leads to several servers.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
    os::unix::net::UnixListener as StdUnixListener,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{Notify, watch},
};
use tokio_util::sync::CancellationToken;

use crate::wait::wait_until;

/// Passes bytes unchanged between its clients and a server, until a fault is set.
///
/// It runs on a thread of its own, so that a frozen or busy caller does not slow it. Dropping it closes every
/// connection.
#[derive(Debug)]
pub struct FaultProxy {
    /// The address to use in place of the server's.
    pub address: SocketAddr,
    state: Arc<ProxyState>,
    stop: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
}

/// A handle of bytes that are, or will be, held back. Dropping it does not deliver them; see [`HeldBytes::release`].
#[derive(Debug)]
pub struct HeldBytes(Arc<ByteHoldState>);

/// The message that is lost when a connection carrying a chosen text is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutPoint {
    /// The server never gets the request.
    Question,
    /// The server has executed the request, and its answer is lost.
    Answer,
}

/// The behaviour of the proxy for all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProxyMode {
    Pass,
    /// Connections stay open, and nothing passes.
    Silent,
    /// No connection passes: each is closed.
    Closed,
    /// The proxy reads the bytes of clients, and delivers none of them.
    Hold,
}

#[derive(Debug)]
struct ProxyState {
    targets: Mutex<RoundRobin>,
    mode: watch::Sender<ProxyMode>,
    /// The number of times that all connections were broken.
    breaks: watch::Sender<u64>,
    /// The fault that waits for its text. It applies to the first connection on which the text is sent.
    next: Mutex<Option<PendingFault>>,
    cut: Notify,
    /// The bytes of each connection that came while the proxy held. No entry is ever removed, because connections
    /// refer to theirs by its index.
    late: Mutex<Vec<Vec<u8>>>,
    late_changes: watch::Sender<usize>,
}

#[derive(Debug)]
struct RoundRobin {
    targets: Vec<ProxyTarget>,
    next: usize,
}

#[derive(Debug, Clone)]
enum ProxyTarget {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

#[derive(Debug)]
struct PendingFault {
    needle: Vec<u8>,
    fault: ConnectionFault,
}

#[derive(Debug)]
enum ConnectionFault {
    Hold(Arc<ByteHoldState>),
    Cut(CutPoint),
}

#[derive(Debug, Default)]
struct ByteHoldState {
    captured: watch::Sender<bool>,
    released: watch::Sender<bool>,
}

/// The state that the two directions of one connection share.
#[derive(Debug, Default)]
struct ConnectionState {
    /// Bytes of the client are held, and are delivered even if the client has gone.
    holds: AtomicBool,
    /// The next answer is lost, and the connection is cut.
    loses_answer: AtomicBool,
}

/// The error that ends both directions of a connection at once.
struct ConnectionOver;

trait ProxyStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> ProxyStream for S {}

enum ProxyListener {
    Tcp(StdListener),
    Unix(StdUnixListener),
}

const BUFFER: usize = 64 << 10;
/// Bytes. A longer text is not found if it is split across two reads.
const LONGEST_NEEDLE: usize = 256;

impl FaultProxy {
    /// Listens on a port of loopback, and leads every connection to one server.
    ///
    /// # Panics
    /// If there is no free port or no thread.
    pub fn start(server: SocketAddr) -> Self {
        Self::try_start(server).expect("a free port and a thread")
    }

    /// # Errors
    /// Returns an error if there is no free port or no thread.
    pub fn try_start(server: SocketAddr) -> io::Result<Self> {
        Self::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), vec![ProxyTarget::Tcp(server)])
    }

    /// Listens on a port of loopback, and leads each connection to the next of several servers, as a load balancer
    /// or a Kubernetes service does.
    ///
    /// # Panics
    /// If there is no free port or no thread.
    pub fn start_balancing(servers: &[SocketAddr]) -> Self {
        Self::balance_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), servers)
    }

    /// Listens at `address`, and leads each connection to the next of several servers.
    ///
    /// # Panics
    /// If another process has this address.
    pub fn balance_at(address: SocketAddr, servers: &[SocketAddr]) -> Self {
        Self::listen(address, tcp_targets(servers)).expect("a free port and a thread")
    }

    /// Listens on a port of loopback, and leads every connection to the Unix socket at this path, whichever process
    /// listens there.
    ///
    /// # Panics
    /// If there is no free port or no thread.
    pub fn to_socket(path: &Path) -> Self {
        let targets = vec![ProxyTarget::Unix(path.to_owned())];
        Self::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), targets).expect("a free port and a thread")
    }

    /// Listens on a Unix socket at this path, and leads every connection to `service`. The proxy's `address` is that
    /// of the service.
    ///
    /// # Panics
    /// If the path exists, for example because another process listens there.
    pub fn from_socket(path: &Path, service: SocketAddr) -> Self {
        let listener = StdUnixListener::bind(path).expect("a free path");
        listener.set_nonblocking(true).expect("our own socket");
        let targets = vec![ProxyTarget::Tcp(service)];
        Self::serve(ProxyListener::Unix(listener), service, targets).expect("a thread")
    }

    fn listen(address: SocketAddr, targets: Vec<ProxyTarget>) -> io::Result<Self> {
        let listener = StdListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Self::serve(ProxyListener::Tcp(listener), address, targets)
    }

    fn serve(listener: ProxyListener, address: SocketAddr, targets: Vec<ProxyTarget>) -> io::Result<Self> {
        let state = Arc::new(ProxyState {
            targets: Mutex::new(RoundRobin { targets, next: 0 }),
            mode: watch::Sender::new(ProxyMode::Pass),
            breaks: watch::Sender::new(0),
            next: Mutex::default(),
            cut: Notify::new(),
            late: Mutex::default(),
            late_changes: watch::Sender::new(0),
        });
        let stop = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let accepting = accept(listener, state.clone());
        let stopped = stop.clone();
        let run = move || drop(runtime.block_on(stopped.run_until_cancelled(accepting)));
        let thread = thread::Builder::new().name("fault-proxy".into()).spawn(run)?;
        Ok(Self { address, state, stop, thread: Some(thread) })
    }

    /// Leads every connection made from now on to these addresses, in turn.
    pub fn set_targets(&self, servers: &[SocketAddr]) {
        *lock(&self.state.targets) = RoundRobin { targets: tcp_targets(servers), next: 0 };
    }

    /// Ends all connections. New ones are accepted.
    pub fn break_all(&self) {
        self.state.breaks.send_modify(|times| *times += 1);
    }

    /// Keeps connections open and lets nothing pass. `false` ends the silence, and breaks the connections, because a
    /// stream cannot go on with a gap in it.
    pub fn set_silent(&self, silent: bool) {
        self.state.mode.send_replace(if silent { ProxyMode::Silent } else { ProxyMode::Pass });
        if !silent {
            self.break_all();
        }
    }

    /// Closes all connections, and every connection made from now on.
    pub fn close(&self) {
        self.state.mode.send_replace(ProxyMode::Closed);
        self.break_all();
    }

    /// Lets new connections pass again.
    pub fn open(&self) {
        self.state.mode.send_replace(ProxyMode::Pass);
    }

    /// Holds back the next bytes towards the server that contain `needle`, and everything after them on their
    /// connection. Only the first match is held; other connections pass. A fault that was set before and has matched
    /// nothing is dropped.
    pub fn hold_containing(&self, needle: impl Into<Vec<u8>>) -> HeldBytes {
        let held = Arc::<ByteHoldState>::default();
        self.set_fault(needle.into(), ConnectionFault::Hold(held.clone()));
        HeldBytes(held)
    }

    /// Cuts the next connection on which a client sends `words`, and loses its request or its answer.
    pub fn cut_next(&self, words: &str, lost: CutPoint) {
        self.set_fault(words.into(), ConnectionFault::Cut(lost));
    }

    fn set_fault(&self, needle: Vec<u8>, fault: ConnectionFault) {
        *lock(&self.state.next) = Some(PendingFault { needle, fault });
    }

    /// Returns when the connection of [`Self::cut_next`] is cut.
    pub async fn wait_cut(&self) {
        self.state.cut.notified().await;
    }

    /// From now on the proxy reads the bytes of clients, and delivers nothing before [`Self::deliver`]: like a proxy
    /// that is cut off from the service, or the queue of a paused machine.
    pub fn hold(&self) {
        self.state.mode.send_replace(ProxyMode::Hold);
    }

    /// Passes new connections on. Held bytes and their connections stay held.
    pub fn pass_through(&self) {
        self.state.mode.send_replace(ProxyMode::Pass);
    }

    /// Waits until the proxy holds a whole request that ends with these bytes.
    pub async fn wait_received(&self, end: &[u8]) {
        let found = self.wait_late(|late| late.iter().any(|bytes| bytes.ends_with(end)));
        wait_until("a request in the proxy", found, || format!("{:?}", lock(&self.state.late))).await;
    }

    /// Waits until the proxy holds bytes on at least this many connections.
    pub async fn wait_held(&self, connections: usize) {
        let filled = |late: &[Vec<u8>]| late.iter().filter(|bytes| !bytes.is_empty()).count();
        let found = self.wait_late(|late| filled(late) >= connections);
        let seen = || format!("{} connections", filled(&lock(&self.state.late)));
        wait_until("requests in the proxy", found, seen).await;
    }

    async fn wait_late(&self, found: impl Fn(&[Vec<u8>]) -> bool) {
        let mut changes = self.state.late_changes.subscribe();
        while !found(&lock(&self.state.late)) {
            changes.changed().await.expect("the proxy lives");
        }
    }

    /// Delivers the held bytes on new connections, whether or not their senders are still connected, and returns the
    /// answers.
    ///
    /// # Panics
    /// If the server cannot be reached.
    pub async fn deliver(&self) -> Vec<String> {
        let held: Vec<_> = lock(&self.state.late).iter_mut().map(std::mem::take).collect();
        let mut answers = Vec::new();
        for bytes in held.into_iter().filter(|bytes| !bytes.is_empty()) {
            let mut server = self.state.connect().await.expect("the server listens");
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

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.stop.cancel();
        // Waits for the thread, so that the address is free afterwards. The result is ignored: a panic was printed
        // when it happened.
        self.thread.take().map(thread::JoinHandle::join);
    }
}

impl HeldBytes {
    /// Waits until the bytes have arrived at the proxy and are held.
    pub async fn wait_captured(&self) {
        wait_true(&self.0.captured).await;
    }

    /// Delivers the bytes, even if their sender has closed its connection meanwhile.
    pub fn release(&self) {
        self.0.released.send_replace(true);
    }
}

fn tcp_targets(servers: &[SocketAddr]) -> Vec<ProxyTarget> {
    servers.iter().copied().map(ProxyTarget::Tcp).collect()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn wait_true(flag: &watch::Sender<bool>) {
    flag.subscribe().wait_for(|set| *set).await.expect("the sender is borrowed here");
}

async fn accept(listener: ProxyListener, state: Arc<ProxyState>) -> io::Result<()> {
    match listener {
        ProxyListener::Tcp(listener) => {
            let listener = TcpListener::from_std(listener)?;
            loop {
                let (client, _) = listener.accept().await?;
                client.set_nodelay(true)?;
                tokio::spawn(state.clone().relay(Box::new(client)));
            }
        }
        ProxyListener::Unix(listener) => {
            let listener = UnixListener::from_std(listener)?;
            loop {
                let (client, _) = listener.accept().await?;
                tokio::spawn(state.clone().relay(Box::new(client)));
            }
        }
    }
}

impl RoundRobin {
    fn take(&mut self) -> Option<ProxyTarget> {
        self.next += 1;
        let places = self.targets.len();
        self.targets.get((self.next - 1).checked_rem(places)?).cloned()
    }
}

impl ProxyState {
    async fn connect(&self) -> io::Result<Box<dyn ProxyStream>> {
        let target = lock(&self.targets).take();
        match target.ok_or(io::ErrorKind::NotConnected)? {
            ProxyTarget::Tcp(server) => {
                let server = TcpStream::connect(server).await?;
                server.set_nodelay(true)?;
                Ok(Box::new(server))
            }
            ProxyTarget::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        }
    }

    async fn relay(self: Arc<Self>, mut client: Box<dyn ProxyStream>) {
        let mut breaks = self.breaks.subscribe();
        let mut mode = self.mode.subscribe();
        let at_first = *mode.borrow();
        match at_first {
            ProxyMode::Closed => return,
            ProxyMode::Hold => return self.keep_for_later(Vec::new(), &mut client).await,
            ProxyMode::Pass | ProxyMode::Silent => {}
        }
        let Ok(mut server) = self.connect().await else { return };
        tokio::select! {
            () = self.forward(&mut client, &mut server) => return,
            _ = breaks.changed() => return,
            _ = mode.wait_for(|mode| *mode == ProxyMode::Silent) => {}
        }
        // Both ends stay open for as long as nothing passes.
        drop(breaks.changed().await);
    }

    /// Forwards both directions until both have ended, the connection is broken, or its fault has happened.
    async fn forward(&self, client: &mut Box<dyn ProxyStream>, server: &mut Box<dyn ProxyStream>) {
        let (from_client, to_client) = split(client);
        let (from_server, to_server) = split(server);
        let connection = ConnectionState::default();
        let requests = self.forward_requests(&connection, from_client, to_server);
        let answers = self.forward_answers(&connection, from_server, to_client);
        tokio::try_join!(requests, answers).ok();
    }

    async fn forward_requests(
        &self,
        connection: &ConnectionState,
        mut from: ReadHalf<&mut Box<dyn ProxyStream>>,
        mut to: WriteHalf<&mut Box<dyn ProxyStream>>,
    ) -> Result<(), ConnectionOver> {
        let mut buffer = vec![0; BUFFER];
        let mut tail = Vec::new();
        while let count @ 1.. = from.read(&mut buffer).await? {
            let bytes = &buffer[..count];
            if *self.mode.borrow() == ProxyMode::Hold {
                to.shutdown().await?;
                self.keep_for_later(bytes.to_vec(), &mut from).await;
                return Err(ConnectionOver);
            }
            match self.take_fault(&tail, bytes) {
                None => to.write_all(bytes).await?,
                Some(ConnectionFault::Cut(CutPoint::Question)) => {
                    self.cut.notify_one();
                    return Err(ConnectionOver);
                }
                Some(ConnectionFault::Cut(CutPoint::Answer)) => {
                    to.write_all(bytes).await?;
                    connection.loses_answer.store(true, Relaxed);
                }
                Some(ConnectionFault::Hold(held)) => {
                    connection.holds.store(true, Relaxed);
                    let sender = held.hold(bytes, &mut from, &mut to).await?;
                    if sender == SenderState::Disconnected {
                        // Closing now could cancel the request that was just delivered, so wait until the server has
                        // ended its direction.
                        return Ok(());
                    }
                    connection.holds.store(false, Relaxed);
                    tail.clear();
                    continue;
                }
            }
            tail.extend_from_slice(bytes);
            tail.drain(..tail.len().saturating_sub(LONGEST_NEEDLE));
        }
        to.shutdown().await?;
        Ok(())
    }

    /// Forwards the bytes of the server. While bytes of the client are held, answers are read even after the client
    /// has gone, as a network would deliver them.
    async fn forward_answers(
        &self,
        connection: &ConnectionState,
        mut from: ReadHalf<&mut Box<dyn ProxyStream>>,
        mut to: WriteHalf<&mut Box<dyn ProxyStream>>,
    ) -> Result<(), ConnectionOver> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = from.read(&mut buffer).await;
            if connection.loses_answer.load(Relaxed) {
                self.cut.notify_one();
                return Err(ConnectionOver);
            }
            let passed = match read {
                Ok(0) => return Ok(to.shutdown().await?),
                Ok(count) => to.write_all(&buffer[..count]).await,
                Err(_) if connection.holds.load(Relaxed) => return Ok(()),
                Err(error) => Err(error),
            };
            if !connection.holds.load(Relaxed) {
                passed?;
            }
        }
    }

    /// Takes the pending fault if its text is in `bytes`, or begins in `tail`, the end of the bytes that have
    /// passed.
    fn take_fault(&self, tail: &[u8], bytes: &[u8]) -> Option<ConnectionFault> {
        let mut next = lock(&self.next);
        let needle = &next.as_ref()?.needle;
        // Look at less of the tail than the text is long, so that a text that has passed completely is not found
        // again.
        let across = tail.len().saturating_sub(needle.len().saturating_sub(1));
        let seen = [&tail[across..], bytes].concat();
        let found = !needle.is_empty() && seen.windows(needle.len()).any(|window| window == needle);
        next.take_if(|_| found).map(|pending| pending.fault)
    }

    /// Reads what comes on a connection, and keeps it for [`FaultProxy::deliver`].
    async fn keep_for_later(&self, first: Vec<u8>, from: &mut (impl AsyncRead + Unpin)) {
        let place = {
            let mut late = lock(&self.late);
            late.push(first);
            late.len() - 1
        };
        self.late_changes.send_modify(|times| *times += 1);
        let mut piece = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut piece).await {
            lock(&self.late)[place].extend_from_slice(&piece[..read]);
            self.late_changes.send_modify(|times| *times += 1);
        }
    }
}

impl From<io::Error> for ConnectionOver {
    fn from(_: io::Error) -> Self {
        Self
    }
}

#[derive(Debug, PartialEq, Eq)]
enum SenderState {
    Connected,
    Disconnected,
}

impl ByteHoldState {
    /// Collects the bytes of a connection until the release, then delivers them. It keeps reading meanwhile: bytes
    /// left in the proxy's socket would be lost when the sender resets the connection.
    async fn hold(
        &self,
        first: &[u8],
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<SenderState> {
        let mut bytes = first.to_vec();
        self.captured.send_replace(true);
        let collect = async {
            let mut buffer = vec![0; BUFFER];
            while let Ok(count @ 1..) = from.read(&mut buffer).await {
                bytes.extend_from_slice(&buffer[..count]);
            }
        };
        let sender = tokio::select! {
            () = collect => SenderState::Disconnected,
            () = wait_true(&self.released) => SenderState::Connected,
        };
        wait_true(&self.released).await;
        to.write_all(&bytes).await?;
        Ok(sender)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// An upstream that sends each line back, and reports the lines that it received.
    async fn echo() -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>) {
        use tokio::io::{AsyncBufReadExt, BufReader};

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, lines) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = seen.clone();
                tokio::spawn(async move {
                    let (from, mut to) = stream.into_split();
                    let mut from = BufReader::new(from).lines();
                    while let Ok(Some(line)) = from.next_line().await {
                        to.write_all(format!("{line}\n").as_bytes()).await.unwrap();
                        seen.send(line).unwrap();
                    }
                });
            }
        });
        (address, lines)
    }

    async fn answer(stream: &mut TcpStream) -> String {
        let mut buffer = [0; 100];
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut buffer)).await;
        let count = read.expect("an answer in time").unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    /// Only the chosen request is held, and only once. After the release it arrives although its sender has reset
    /// the connection.
    #[tokio::test]
    async fn held_request_arrives_after_sender_reset() {
        let (upstream, mut lines) = echo().await;
        let relay = FaultProxy::start(upstream);
        let mut one = TcpStream::connect(relay.address).await.unwrap();
        let mut two = TcpStream::connect(relay.address).await.unwrap();

        // With Nagle's algorithm " more" would wait in the sender's kernel for an acknowledgement, and be lost with
        // the reset.
        one.set_nodelay(true).unwrap();
        one.write_all(b"before\n").await.unwrap();
        assert_eq!(answer(&mut one).await, "before\n");
        let hold = relay.hold_containing("op-7");
        one.write_all(b"pay op-7 and").await.unwrap();
        hold.wait_captured().await;
        one.write_all(b" more\n").await.unwrap();
        two.write_all(b"other\n").await.unwrap();
        assert_eq!(answer(&mut two).await, "other\n");
        two.write_all(b"again op-7\n").await.unwrap();
        assert_eq!(answer(&mut two).await, "again op-7\n", "a hold captures once");

        // Resets the connection, as a gateway does after its lock validity has ended.
        #[expect(deprecated, reason = "zero does not block: it resets")]
        one.set_linger(Some(Duration::ZERO)).unwrap();
        drop(one);
        tokio::time::sleep(Duration::from_millis(50)).await;
        for expected in ["before", "other", "again op-7"] {
            assert_eq!(lines.recv().await.unwrap(), expected);
        }
        assert!(lines.try_recv().is_err(), "held bytes arrived before the release");
        hold.release();
        assert_eq!(lines.recv().await.unwrap(), "pay op-7 and more");
    }

    /// A needle that spans two reads is found, and the connection goes on after the release.
    #[tokio::test]
    async fn needle_across_two_reads_is_held() {
        let (upstream, _lines) = echo().await;
        let relay = FaultProxy::start(upstream);
        let mut one = TcpStream::connect(relay.address).await.unwrap();
        let hold = relay.hold_containing("needle");
        one.write_all(b"a\nnee").await.unwrap();
        assert_eq!(answer(&mut one).await, "a\n");
        one.write_all(b"dle\n").await.unwrap();
        hold.wait_captured().await;
        hold.release();
        assert_eq!(answer(&mut one).await, "needle\n");
        one.write_all(b"b\n").await.unwrap();
        assert_eq!(answer(&mut one).await, "b\n");
    }

    #[tokio::test]
    async fn dropped_relay_closes_connections() {
        let (upstream, _lines) = echo().await;
        let relay = FaultProxy::start(upstream);
        let mut one = TcpStream::connect(relay.address).await.unwrap();
        one.write_all(b"a\n").await.unwrap();
        assert_eq!(answer(&mut one).await, "a\n");
        drop(relay);
        let mut rest = Vec::new();
        // The read must end, by the end of the connection or by a reset.
        let _either =
            tokio::time::timeout(Duration::from_secs(10), one.read_to_end(&mut rest)).await.unwrap();
        assert!(rest.is_empty());
    }
}
