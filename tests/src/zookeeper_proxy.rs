//! A proxy from one gateway to ZooKeeper, message by message: slow, cut, silent in either direction, or wrong at
//! exactly one operation.
//!
//! It cuts and resets connections, and ends sessions on demand. It catches the next create, delete or transaction of
//! a lock node: the request is lost, or its answer is lost or held.

mod forwarder;
mod link_state;
mod opcode;
#[cfg(test)]
mod tests;
mod trap;

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{net::TcpListener, sync::oneshot};

use self::{
    forwarder::pass,
    link_state::{LinkMode, LinkState},
    trap::FaultTrap,
};
pub use self::{
    opcode::LockNodeOperation,
    trap::{FaultTriggered, OperationFault},
};

/// A proxy in front of ZooKeeper. Its tasks run on the runtime of the test that makes it.
pub struct ZooKeeperProxy {
    address: SocketAddr,
    line: Arc<LinkState>,
}

impl ZooKeeperProxy {
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let line = Arc::new(LinkState::new(server));
        let serving = line.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(serving.clone(), client));
            }
        });
        Self { address, line }
    }

    /// The address to which the gateway connects instead of the server's.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays every answer by this time from now on.
    pub fn delay(&self, by: Duration) {
        self.line.delay.send_replace(by);
    }

    /// From now on requests reach the server, and its answers are lost.
    pub fn lose_replies(&self) {
        self.line.state.send_replace(LinkMode::Deaf);
    }

    /// From now on requests are lost, and answers still pass.
    pub fn lose_requests(&self) {
        self.line.state.send_replace(LinkMode::Mute);
    }

    /// From now on nothing passes in either direction. The connections stay open.
    pub fn lose_all(&self) {
        self.line.state.send_replace(LinkMode::Silent);
    }

    /// Closes all connections, and each new connection at once.
    pub fn cut(&self) {
        self.line.abrupt.store(false, Ordering::Relaxed);
        self.line.break_all();
    }

    /// Closes connections like [`Self::cut`], with a TCP reset.
    pub fn reset(&self) {
        self.line.abrupt.store(true, Ordering::Relaxed);
        self.line.break_all();
    }

    /// Closes new connections at once. Open connections stay open.
    pub fn refuse(&self) {
        self.line.abrupt.store(false, Ordering::Relaxed);
        self.line.state.send_replace(LinkMode::Cut);
    }

    /// Lets all messages pass again.
    ///
    /// # Panics
    /// If messages were lost and the connections are still open: a stream cannot go on after a gap. Call
    /// [`Self::cut`] first.
    pub fn mend(&self) {
        let before = self.line.state.send_replace(LinkMode::Whole);
        assert!(matches!(before, LinkMode::Whole | LinkMode::Cut), "cut first");
    }

    /// Applies a fault to the next operation of this kind.
    ///
    /// # Panics
    /// If another fault still waits for its operation.
    pub fn intercept(&self, operation: LockNodeOperation, fate: OperationFault) -> FaultTriggered {
        let what = format!("{operation:?} to meet its fate: {fate:?}");
        let (sprung, event) = oneshot::channel();
        let before = self.line.trap().replace(FaultTrap { operation, fate, sprung });
        assert!(before.is_none(), "a trap at a time");
        FaultTriggered { what, event }
    }

    /// Removes the fault that still waits for its operation.
    pub fn clear_intercept(&self) {
        self.line.trap().take();
    }

    /// Makes the server end the sessions of all open connections now, as after their timeout.
    pub fn end_sessions(&self) {
        self.line.endings.send_modify(|times| *times += 1);
    }
}
