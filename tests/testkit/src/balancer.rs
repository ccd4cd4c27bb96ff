//! One address with several processes behind it. A client sees such an address at a load balancer, or at a service of a
//! cluster.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};

/// Forwards each connection to one of several addresses, in turn. Works on the runtime of the test that makes it.
pub struct Balancer {
    pub address: SocketAddr,
    turn: Arc<Mutex<RoundRobin>>,
    hang_up: Arc<Notify>,
    running: JoinHandle<()>,
}

struct RoundRobin {
    to: Vec<SocketAddr>,
    next: usize,
}

impl Balancer {
    /// # Panics
    /// If no port is free.
    pub async fn start(addresses: &[SocketAddr]) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), addresses).await
    }

    /// # Panics
    /// If another process has this address.
    pub async fn start_at(address: SocketAddr, addresses: &[SocketAddr]) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let turn = Arc::new(Mutex::new(RoundRobin { to: addresses.to_vec(), next: 0 }));
        let hang_up = Arc::<Notify>::default();
        let next = turn.clone();
        let over = hang_up.clone();
        let running = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let to = next.lock().unwrap_or_else(PoisonError::into_inner).take();
                let over = over.clone();
                tokio::spawn(async move {
                    let over = over.notified();
                    let Ok(mut server) = TcpStream::connect(to).await else { return };
                    tokio::select! {
                        _ended = copy_bidirectional(&mut client, &mut server) => {}
                        () = over => {}
                    }
                });
            }
        });
        Self { address, turn, hang_up, running }
    }

    /// Forwards every later connection to these addresses.
    pub fn set_targets(&self, addresses: &[SocketAddr]) {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        *turn = RoundRobin { to: addresses.to_vec(), next: 0 };
    }

    /// Closes every connection that is open.
    pub fn close_connections(&self) {
        self.hang_up.notify_waiters();
    }
}

impl RoundRobin {
    fn take(&mut self) -> SocketAddr {
        self.next += 1;
        self.to[(self.next - 1) % self.to.len()]
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.running.abort();
    }
}
