//! The way from one gateway to ZooKeeper, message by message: slow, cut, silent in either direction, or wrong at
//! exactly one operation.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot, watch},
    time::sleep_until,
};

use crate::{origin::Latch, patience::patiently};

/// Stands between one gateway and its ZooKeeper. Works on the runtime of the test that makes it.
pub struct FaultyLink {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    state: watch::Sender<State>,
    /// How many times connections were broken. An event: the state may be whole again before anybody looks.
    breaks: watch::Sender<u64>,
    delay: watch::Sender<Duration>,
    /// Connections end with a reset.
    abrupt: AtomicBool,
    /// How many times sessions were ended on demand.
    endings: watch::Sender<u64>,
    trap: Mutex<Option<Trap>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    /// What the client says arrives; what the server answers does not.
    Deaf,
    /// What the client says does not arrive.
    Mute,
    /// Connections stay open, and nothing passes.
    Silent,
    /// New connections are closed at once.
    Cut,
}

/// What is done to a lock node. Other operations of the gateway, its heartbeats above all, spring no trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Delete,
    /// A transaction: the first node of a key, a set's nodes, or a yield.
    Multi,
}

/// What becomes of an operation.
#[derive(Debug, Clone)]
pub enum Fate {
    /// It never arrives, nor does anything behind it on its connection.
    Vanishes,
    /// It is done, and the connection breaks before the answer.
    AnswerLost,
    /// It is done, and the answer, with all behind it, comes when let go.
    AnswerHeld(Latch),
}

struct Trap {
    operation: Operation,
    fate: Fate,
    sprung: oneshot::Sender<()>,
}

/// Tells when the operation has met its fate.
pub struct Sprung {
    what: String,
    event: oneshot::Receiver<()>,
}

impl FaultyLink {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            server,
            state: watch::Sender::new(State::Whole),
            breaks: watch::Sender::new(0),
            delay: watch::Sender::new(Duration::ZERO),
            abrupt: AtomicBool::new(false),
            endings: watch::Sender::new(0),
            trap: Mutex::default(),
        });
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(serving.clone(), client));
            }
        });
        Self { address, shared }
    }

    /// Where to connect instead of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every answer takes this much longer from now on.
    pub fn delay(&self, by: Duration) {
        self.shared.delay.send_replace(by);
    }

    /// From now on the server is obeyed and not heard.
    pub fn lose_replies(&self) {
        self.shared.state.send_replace(State::Deaf);
    }

    /// From now on the server hears nothing.
    pub fn lose_requests(&self) {
        self.shared.state.send_replace(State::Mute);
    }

    /// From now on nothing passes, and nobody is told.
    pub fn lose_all(&self) {
        self.shared.state.send_replace(State::Silent);
    }

    /// All connections are closed, and new ones at once.
    pub fn cut(&self) {
        self.shared.abrupt.store(false, Ordering::Relaxed);
        self.shared.break_all();
    }

    /// The same, with a reset.
    pub fn reset(&self) {
        self.shared.abrupt.store(true, Ordering::Relaxed);
        self.shared.break_all();
    }

    /// # Panics
    /// If something was lost and the connections are still open: a stream cannot go on with a hole in it.
    pub fn mend(&self) {
        let before = self.shared.state.send_replace(State::Whole);
        assert!(matches!(before, State::Whole | State::Cut), "cut first");
    }

    /// The next operation of this kind meets its fate.
    ///
    /// # Panics
    /// If another one still waits for its operation.
    pub fn trap(&self, operation: Operation, fate: Fate) -> Sprung {
        let what = format!("{operation:?} to meet its fate: {fate:?}");
        let (sprung, event) = oneshot::channel();
        let before = self.shared.trap().replace(Trap { operation, fate, sprung });
        assert!(before.is_none(), "a trap at a time");
        Sprung { what, event }
    }

    /// The server ends the sessions of all open connections now, as it would after their timeout.
    pub fn end_sessions(&self) {
        self.shared.endings.send_modify(|times| *times += 1);
    }
}

impl Sprung {
    /// # Panics
    /// If it did not happen in time.
    pub async fn happened(self) {
        let Self { what, event } = self;
        patiently(&what, event, || "nothing").await.expect("the link lives on");
    }
}

impl Shared {
    fn trap(&self) -> MutexGuard<'_, Option<Trap>> {
        self.trap.lock().expect("no thread panics here")
    }

    fn break_all(&self) {
        self.state.send_replace(State::Cut);
        self.breaks.send_modify(|times| *times += 1);
    }

    /// The trap that this message springs.
    fn sprung_by(&self, message: &[u8]) -> Option<Trap> {
        let operation = Operation::of(message)?;
        self.trap().take_if(|trap| trap.operation == operation)
    }

    fn passes(&self, lost_in: State) -> bool {
        let state = *self.state.borrow();
        state != lost_in && state != State::Silent
    }
}

impl Operation {
    /// Numbers of the ZooKeeper protocol; only what names a lock node counts.
    fn of(message: &[u8]) -> Option<Self> {
        let lock_node = |name: &[u8]| name == b"-w-" || name == b"-r-";
        message.windows(3).any(lock_node).then_some(())?;
        match word(message, 2)? {
            1 | 15 => Some(Self::Create),
            2 => Some(Self::Delete),
            14 => Some(Self::Multi),
            _ => None,
        }
    }
}

/// The n-th 32-bit number of a message: 0 is its length, 1 the number of the request, 2 in a request the operation.
fn word(message: &[u8], n: usize) -> Option<i32> {
    message.chunks_exact(4).nth(n).map(|bytes| i32::from_be_bytes(bytes.try_into().expect("four")))
}

/// Messages with their length in front.
struct Messages {
    stream: OwnedReadHalf,
    read: BytesMut,
}

impl Messages {
    fn of(stream: OwnedReadHalf) -> Self {
        Self { stream, read: BytesMut::new() }
    }

    /// `None` at the end.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(length) = word(&self.read, 0).and_then(|length| usize::try_from(length).ok())
                && self.read.len() >= 4 + length
            {
                return Ok(Some(self.read.split_to(4 + length).freeze()));
            }
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// Traps that were sprung by requests whose answers are still to come, by the requests' numbers.
type Expected = Mutex<HashMap<i32, Trap>>;

async fn pass(shared: Arc<Shared>, client: TcpStream) -> io::Result<()> {
    let mut breaks = shared.breaks.subscribe();
    if *shared.state.borrow() == State::Cut {
        return Ok(());
    }
    let server = TcpStream::connect(shared.server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_says, mut to_client) = client.into_split();
    let (server_says, mut to_server) = server.into_split();
    let expected = Expected::default();
    let (due, delayed) = mpsc::unbounded_channel();
    tokio::select! {
        ended = upward(&shared, Messages::of(client_says), &mut to_server, &expected) => ended,
        // What the server said last is passed on before the connection ends.
        ended = async {
            tokio::try_join!(
                downward(&shared, Messages::of(server_says), due, &expected),
                write(&mut to_client, delayed),
            )
        } => ended.map(drop),
        _broken = breaks.changed() => Ok(()),
    }?;
    if shared.abrupt.load(Ordering::Relaxed) {
        to_client.as_ref().set_zero_linger()?;
        to_server.as_ref().set_zero_linger()?;
    }
    Ok(())
}

async fn upward(
    shared: &Shared,
    mut client: Messages,
    server: &mut OwnedWriteHalf,
    expected: &Expected,
) -> io::Result<()> {
    let mut endings = shared.endings.subscribe();
    let mut vanished = false;
    loop {
        let message = tokio::select! {
            message = client.next() => message?,
            _ = endings.changed() => {
                server.write_all(&CLOSE_SESSION).await?;
                continue;
            }
        };
        let Some(message) = message else { return Ok(()) };
        match shared.sprung_by(&message) {
            Some(Trap { fate: Fate::Vanishes, sprung, .. }) => {
                vanished = true;
                sprung.send(()).ok();
            }
            Some(trap) => {
                let number = word(&message, 1).expect("an operation has a number");
                expected.lock().expect("no thread panics here").insert(number, trap);
            }
            None => {}
        }
        if !vanished && shared.passes(State::Mute) {
            server.write_all(&message).await?;
        }
    }
}

/// Number 2^31 - 1, operation -11.
const CLOSE_SESSION: [u8; 12] = [0, 0, 0, 8, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf5];

async fn downward(
    shared: &Shared,
    mut server: Messages,
    due: mpsc::UnboundedSender<(Instant, Bytes)>,
    expected: &Expected,
) -> io::Result<()> {
    while let Some(message) = server.next().await? {
        let number = word(&message, 1).unwrap_or_default();
        let trap = expected.lock().expect("no thread panics here").remove(&number);
        match trap {
            Some(Trap { fate: Fate::AnswerHeld(latch), sprung, .. }) => {
                sprung.send(()).ok();
                latch.passed().await;
            }
            Some(Trap { sprung, .. }) => {
                sprung.send(()).ok();
                return Ok(());
            }
            // The answer to our own word, which no client asked for.
            None if number == i32::MAX => return Ok(()),
            None => {}
        }
        if shared.passes(State::Deaf) {
            due.send((Instant::now() + *shared.delay.borrow(), message)).ok();
        }
    }
    Ok(())
}

async fn write(
    client: &mut OwnedWriteHalf,
    mut delayed: mpsc::UnboundedReceiver<(Instant, Bytes)>,
) -> io::Result<()> {
    while let Some((due, message)) = delayed.recv().await {
        sleep_until(due.into()).await;
        client.write_all(&message).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use zookeeper_client::{Acls, Client, CreateMode, Error};

    use super::*;
    use crate::{patience::QUIET, zookeeper};

    struct Connected {
        link: FaultyLink,
        client: Client,
        /// Reaches the server without the link.
        witness: Client,
        root: String,
    }

    impl Connected {
        async fn new() -> Self {
            let link = FaultyLink::to(zookeeper::shared()).await;
            let connect = async |address: SocketAddr| {
                let connector = Client::connector().with_session_timeout(Duration::from_secs(4));
                connector.connect(&address.to_string()).await.expect("ZooKeeper serves")
            };
            let (client, witness) = (connect(link.address()).await, connect(zookeeper::shared()).await);
            let root = zookeeper::fresh_root();
            let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
            witness.mkdir(&root, &persistent).await.expect("made");
            Self { link, client, witness, root }
        }

        async fn create(&self) -> Result<(), Error> {
            let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
            self.client.create(&format!("{}/n-w-", self.root), b"", &mode).await.map(drop)
        }

        async fn nodes(&self) -> usize {
            self.witness.list_children(&self.root).await.expect("listed").len()
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_lost_was_of_something_done_and_ends_the_connection() {
        let all = Connected::new().await;
        let sprung = all.link.trap(Operation::Create, Fate::AnswerLost);
        all.client.list_children(&all.root).await.expect("another operation is let through");
        all.create().await.expect_err("no answer");
        sprung.happened().await;
        assert_eq!(all.nodes().await, 1);
        all.create().await.expect("once, and over a new connection");
        assert_eq!(all.nodes().await, 2);
    }

    #[tokio::test]
    async fn what_vanishes_is_not_done() {
        let all = Connected::new().await;
        let sprung = all.link.trap(Operation::Create, Fate::Vanishes);
        let (created, ()) = tokio::join!(all.create(), async {
            sprung.happened().await;
            all.link.cut();
            all.link.mend();
        });
        created.expect_err("no answer");
        assert_eq!(all.nodes().await, 0);
        all.create().await.expect("over a new connection");
    }

    #[tokio::test]
    async fn an_answer_that_is_held_comes_when_let_go() {
        let all = Connected::new().await;
        let latch = Latch::default();
        let sprung = all.link.trap(Operation::Create, Fate::AnswerHeld(latch.clone()));
        let created = async {
            all.create().await.expect("answered");
            Instant::now()
        };
        let (answered, let_go) = tokio::join!(created, async {
            sprung.happened().await;
            assert_eq!(all.nodes().await, 1);
            tokio::time::sleep(QUIET).await;
            let now = Instant::now();
            latch.let_go();
            now
        });
        assert!(answered > let_go);
    }

    #[tokio::test]
    async fn a_session_that_is_ended_takes_its_nodes_along() {
        let all = Connected::new().await;
        all.create().await.expect("made");
        all.link.end_sessions();
        let mut state = all.client.state_watcher();
        let over = async { while !state.changed().await.is_terminated() {} };
        patiently("the client to learn of it", over, || "nothing").await;
        assert_eq!(all.nodes().await, 0);
    }

    #[tokio::test]
    async fn a_silent_link_passes_nothing_either_way_and_a_reset_one_is_told() {
        let all = Connected::new().await;
        for lose in [FaultyLink::lose_replies, FaultyLink::lose_requests, FaultyLink::lose_all] {
            // What is asked for while disconnected is not lost but sent later.
            all.client.list_children(&all.root).await.expect("connected");
            lose(&all.link);
            let mut created = std::pin::pin!(all.create());
            assert!(tokio::time::timeout(QUIET, &mut created).await.is_err(), "answered");
            all.link.reset();
            all.link.mend();
            created.await.expect_err("no answer");
        }
        assert_eq!(all.nodes().await, 1, "only what was said while replies were lost was done");
    }

    #[tokio::test]
    async fn a_slow_link_delays_every_answer() {
        const DELAY: Duration = Duration::from_millis(200);
        let all = Connected::new().await;
        all.link.delay(DELAY);
        let begun = Instant::now();
        let (one, two) = tokio::join!(all.create(), all.create());
        assert_eq!((one, two), (Ok(()), Ok(())));
        let took = begun.elapsed();
        assert!(took >= DELAY, "took {took:?}");
    }
}
