//! Passes the messages of one connection on, unless the proxy delays them, loses them, or applies a fault.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    time::sleep_until,
};

use super::{
    OperationFault,
    link_state::{LinkMode, LinkState},
    opcode::read_i32,
    trap::FaultTrap,
};

/// Splits a stream into messages, by the length at the beginning of each message.
struct ZkMessageReader {
    stream: OwnedReadHalf,
    read: BytesMut,
}

impl ZkMessageReader {
    fn of(stream: OwnedReadHalf) -> Self {
        Self { stream, read: BytesMut::new() }
    }

    /// The next message with its length, or `None` at the end of the stream.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(length) = read_i32(&self.read, 0).and_then(|length| usize::try_from(length).ok())
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

/// The traps of requests whose answers are still to come, by the numbers of the requests.
type PendingReplies = Mutex<HashMap<i32, FaultTrap>>;

pub(super) async fn pass(line: Arc<LinkState>, client: TcpStream) -> io::Result<()> {
    let mut breaks = line.breaks.subscribe();
    if *line.state.borrow() == LinkMode::Cut {
        return Ok(());
    }
    let server = TcpStream::connect(line.server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_says, mut to_client) = client.into_split();
    let (server_says, mut to_server) = server.into_split();
    let expected = PendingReplies::default();
    let (due, delayed) = mpsc::unbounded_channel();
    tokio::select! {
        ended = forward_requests(&line, ZkMessageReader::of(client_says), &mut to_server, &expected) => ended,
        // The last bytes of the server are forwarded before the connection ends.
        ended = async {
            tokio::try_join!(
                forward_replies(&line, ZkMessageReader::of(server_says), due, &expected),
                write(&mut to_client, delayed),
            )
        } => ended.map(drop),
        _broken = breaks.changed() => Ok(()),
    }?;
    if line.abrupt.load(Ordering::Relaxed) {
        to_client.as_ref().set_zero_linger()?;
        to_server.as_ref().set_zero_linger()?;
    }
    Ok(())
}

async fn forward_requests(
    line: &LinkState,
    mut client: ZkMessageReader,
    server: &mut OwnedWriteHalf,
    expected: &PendingReplies,
) -> io::Result<()> {
    let mut endings = line.endings.subscribe();
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
        match line.take_matching_trap(&message) {
            Some(FaultTrap { fate: OperationFault::Vanishes, sprung, .. }) => {
                vanished = true;
                sprung.send(()).ok();
            }
            Some(trap) => {
                let number = read_i32(&message, 1).expect("an operation has a number");
                expected.lock().expect("no thread panics here").insert(number, trap);
            }
            None => {}
        }
        if !vanished && line.passes(LinkMode::Mute) {
            server.write_all(&message).await?;
        }
    }
}

/// A request to close the session: request number 2^31 - 1, operation -11.
const CLOSE_SESSION: [u8; 12] = [0, 0, 0, 8, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf5];

async fn forward_replies(
    line: &LinkState,
    mut server: ZkMessageReader,
    due: mpsc::UnboundedSender<(Instant, Bytes)>,
    expected: &PendingReplies,
) -> io::Result<()> {
    while let Some(message) = server.next().await? {
        let number = read_i32(&message, 1).unwrap_or_default();
        let trap = expected.lock().expect("no thread panics here").remove(&number);
        match trap {
            Some(FaultTrap { fate: OperationFault::AnswerHeld(latch), sprung, .. }) => {
                sprung.send(()).ok();
                latch.wait_released().await;
            }
            Some(FaultTrap { sprung, .. }) => {
                sprung.send(()).ok();
                return Ok(());
            }
            // This is the answer to the proxy's own request to close the session. No client has sent that request.
            None if number == i32::MAX => return Ok(()),
            None => {}
        }
        if line.passes(LinkMode::Deaf) {
            due.send((Instant::now() + *line.delay.borrow(), message)).ok();
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
