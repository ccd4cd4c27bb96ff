//! A ZooKeeper in memory: in simulated time, repeatable, and with every accident on demand.
//!
//! It implements the gateway's own client trait, [`fencegate_zookeeper::session::client`], and answers like a real
//! server: the tests in `sim/` send both the same requests. Start it by [`SimEnsemble::start`] inside a `LocalSet`,
//! make a [`SimEnsemble::wire`], give the [`SimEnsemble::client`] on it to the gateway, and cause accidents on the
//! [`Wire`].
//!
//! Reading order: [`tree`] holds the nodes, [`request`] has the operations on them, [`server`] adds sessions and
//! [`server_watches`]; none of these has a clock. [`ensemble`] adds the clock and the faults of all clients, [`wire`]
//! the faults of one client. [`client_sim`] does what the client library does, with its [`client_watches`] and its
//! [`delay_queue`]s; [`session`] is the interface for the gateway. [`rng`] makes random numbers repeatable.

mod client_sim;
mod client_watches;
mod delay_queue;
pub mod ensemble;
mod request;
pub mod rng;
mod server;
mod server_watches;
pub mod session;
mod tree;
pub mod wire;
mod znode_path;

pub use ensemble::{EnsembleSettings, SimEnsemble};
pub use rng::SeededRng;
pub use session::{SimConnector, SimSession};
pub use wire::{UndeliveredRequestFate, Wire, WireDirection};
