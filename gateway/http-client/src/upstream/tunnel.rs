//! A tunnel after a switch of protocols: bytes pass in both directions until one side ends, or a limit ends the
//! tunnel.

use std::{
    any::Any,
    cell::Cell,
    future::{Future, pending},
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use fencegate_http::upgrade::{TunnelEnd, UpgradeHandler, UpgradedIo};
use fencegate_process::{
    clock::{SendPermission, SharedClock},
    display::FormattedDuration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split},
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    checkout::CheckedOutConnection,
    gate::{GateShutReason, WriteGate},
};

/// A tunnel before its first byte. Its drop resets the connection to the upstream.
pub struct PendingTunnel {
    pub client: oneshot::Receiver<UpgradedIo>,
    pub upstream: oneshot::Receiver<UpgradedIo>,
    pub checkout: CheckedOutConnection,
    /// The permission under which bytes may go to the upstream; the gate checks it as well.
    pub permission: Option<Arc<dyn SendPermission>>,
    pub clock: SharedClock,
    pub bounds: TunnelTimeouts,
    pub drain: CancellationToken,
    /// Values that count the tunnel as in flight until they are dropped.
    pub counts: Box<dyn Any>,
}

/// The time limits of a tunnel.
#[derive(Debug, Clone, Copy)]
pub struct TunnelTimeouts {
    /// The longest time without a byte in either direction.
    pub idle: Duration,
    /// The longest time for the upstream to close its side after the client has closed, and for both streams to be
    /// handed over.
    pub farewell: Duration,
    /// How long the tunnel may go on after the process has begun to stop.
    pub drain: Duration,
}

impl PendingTunnel {
    /// Runs until the tunnel ends, for at most `longest`.
    ///
    /// # Cancellation
    /// Dropping the future resets the connection to the upstream.
    pub async fn run(self, longest: Duration) -> TunnelEnd {
        let began = Instant::now();
        let checkout = self.checkout;
        let _counts = self.counts;
        let gate = self.permission.is_some().then(|| checkout.gate().clone());
        let stopped = shut_gate_on_stop(self.drain, self.bounds.drain, gate);
        let cut = wait_cut_reason(
            shut_gate_on_lapse(self.permission, self.clock, checkout.gate().clone()),
            stopped,
            longest,
        );
        let ends = async { (self.client.await, self.upstream.await) };
        let ended = match timeout(self.bounds.farewell, ends).await {
            Ok((Ok(client), Ok(switched))) => {
                tokio::select! {
                    ended = relay(client, switched, &checkout, self.bounds) => ended,
                    reason = cut => TunnelEnd::Cut(reason),
                }
            }
            Ok(_) | Err(_) => TunnelEnd::Cut("an end was not handed over"),
        };
        info!(endpoint = %checkout.endpoint(), ended = ended.as_str(), lasted = %FormattedDuration(began.elapsed()), "tunnel.ended");
        ended
    }
}

impl UpgradeHandler for PendingTunnel {
    fn run(self: Box<Self>, longest: Duration) -> Pin<Box<dyn Future<Output = TunnelEnd>>> {
        Box::pin((*self).run(longest))
    }
}

/// Returns when the permission has ended, and shuts the gate for that reason.
async fn shut_gate_on_lapse(
    permission: Option<Arc<dyn SendPermission>>,
    clock: SharedClock,
    gate: Rc<WriteGate>,
) {
    match permission {
        Some(permission) => permission.wait_expired(&clock).await,
        None => pending().await,
    }
    gate.shut(GateShutReason::ProofLost);
}

/// Returns `patience` after the process has begun to stop. If the tunnel holds a key, its gate is shut, because the
/// upstream has not closed the tunnel.
async fn shut_gate_on_stop(drain: CancellationToken, patience: Duration, gate: Option<Rc<WriteGate>>) {
    drain.cancelled().await;
    sleep(patience).await;
    if let Some(gate) = gate {
        gate.shut(GateShutReason::Stopped);
    }
}

/// Returns, with the reason, when the tunnel must not go on.
async fn wait_cut_reason(
    lapsed: impl Future<Output = ()>,
    stopped: impl Future<Output = ()>,
    longest: Duration,
) -> &'static str {
    tokio::select! {
        () = lapsed => "the session could not be proven any more",
        () = stopped => "the process stops",
        () = sleep(longest) => "the tenure is over",
    }
}

/// Passes bytes until one side ends, or until no byte has passed for too long.
async fn relay(
    client: UpgradedIo,
    upstream: UpgradedIo,
    checkout: &CheckedOutConnection,
    bounds: TunnelTimeouts,
) -> TunnelEnd {
    let _held = client.held;
    let moved = Cell::new(Instant::now());
    let (mut from_client, mut to_client) = split(client.stream);
    let (mut from_upstream, mut to_upstream) = split(upstream.stream);
    let ended = {
        let mut down = std::pin::pin!(pump(upstream.first, &mut from_upstream, &mut to_client, &moved));
        let up = pump(client.first, &mut from_client, &mut to_upstream, &moved);
        // Both directions are awaited together, so that an error in one direction ends the other at once.
        tokio::select! {
            down = &mut down => match down {
                Ok(()) => TunnelEnd::Closed,
                Err(TunnelCopyError::From) => TunnelEnd::Broken,
                Err(TunnelCopyError::To) => TunnelEnd::Cut("the client's connection broke"),
            },
            up = up => match up {
                Err(TunnelCopyError::From) => TunnelEnd::Cut("the client's connection broke"),
                // The client has closed. While the permission holds, the upstream gets an orderly close, and its own
                // close shows that it is done. An upstream that takes no more bytes may still send some, so they are
                // awaited.
                Ok(()) | Err(TunnelCopyError::To) => {
                    checkout.gate().begin_close_if_permitted();
                    let farewell = async { (to_upstream.shutdown().await, down.await) };
                    match timeout(bounds.farewell, farewell).await {
                        Ok((_, Ok(()))) => TunnelEnd::Closed,
                        Ok((_, Err(TunnelCopyError::From))) => TunnelEnd::Broken,
                        Ok((_, Err(TunnelCopyError::To))) => TunnelEnd::Cut("the client's connection broke"),
                        Err(_) => TunnelEnd::Cut("the client has ended it, and the upstream has not"),
                    }
                }
            },
            () = wait_idle(&moved, bounds.idle) => TunnelEnd::Cut("idle"),
        }
    };
    if ended == TunnelEnd::Closed {
        checkout.gate().begin_close_if_permitted();
        checkout.record_success();
        let both = async {
            // An error means that the client has gone, so nothing is left to do for it.
            tokio::join!(to_client.shutdown(), close_upstream_side(&mut to_upstream, checkout.gate())).0.ok();
        };
        timeout(bounds.farewell, both).await.ok();
    }
    ended
}

/// Returns when the upstream has received every byte and the end, so that the connection needs no reset. It does not
/// wait for bytes that the upstream does not take: the close of the upstream shows that it is done.
async fn close_upstream_side<S: AsyncWrite>(to_upstream: &mut WriteHalf<S>, gate: &WriteGate) {
    let mut pause = FIRST_LOOK;
    let taken = async {
        while gate.is_closing() {
            // If the shutdown fails, the connection has ended, which the gate notices.
            to_upstream.shutdown().await.ok();
            if gate.is_closing() {
                sleep(pause).await;
                pause *= 2;
            }
        }
    };
    timeout(CLOSE, taken).await.ok();
}

/// How long the upstream may take to acknowledge the end of a tunnel that it has closed itself.
const CLOSE: Duration = Duration::from_secs(1);
/// The time to the first check for that acknowledgement.
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// Names the end that broke in one direction of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TunnelCopyError {
    From,
    To,
}

/// Passes `first`, and then all bytes until the end of the stream.
async fn pump<F: AsyncRead, T: AsyncWrite>(
    first: Bytes,
    from: &mut ReadHalf<F>,
    to: &mut WriteHalf<T>,
    moved: &Cell<Instant>,
) -> Result<(), TunnelCopyError> {
    let to_broke = |_: io::Error| TunnelCopyError::To;
    to.write_all(&first).await.map_err(to_broke)?;
    to.flush().await.map_err(to_broke)?;
    let mut piece = vec![0; PIECE];
    loop {
        let read = from.read(&mut piece).await.map_err(|_| TunnelCopyError::From)?;
        moved.set(Instant::now());
        if read == 0 {
            return Ok(());
        }
        to.write_all(&piece[..read]).await.map_err(to_broke)?;
        to.flush().await.map_err(to_broke)?;
        moved.set(Instant::now());
    }
}

/// The buffer of one direction, in bytes.
const PIECE: usize = 16 << 10;

async fn wait_idle(moved: &Cell<Instant>, limit: Duration) {
    loop {
        let last = moved.get();
        sleep_until(last + limit).await;
        if moved.get() == last {
            return;
        }
    }
}
