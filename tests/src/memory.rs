//! A ZooKeeper in memory: in simulated time, repeatable, and with every accident on demand.
//!
//! It stands behind the gateway's own seam, [`fencegate_lock::session::client`], and answers as a real server does: the
//! tests in `sim/` ask both the same questions. Start with [`SimEnsemble::start`] inside a `LocalSet`, make an
//! [`SimEnsemble::wire`], give the [`SimEnsemble::client`] on it to the gateway, and hurt the [`Wire`].
//!
//! Reading order: [`tree`] holds the nodes, [`request`] is what can be asked of them, [`server`] puts sessions and
//! [`server_watches`] around them; none of these knows the time. [`ensemble`] brings the clock and the accidents of all,
//! [`wire`] the accidents of one client. [`client_sim`] is what the client library does, with its [`client_watches`] and
//! its [`delay_queue`]s; [`session`] is what the gateway sees of it. [`rng`] makes what is random repeatable.

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
pub use session::{SimClient, SimSession};
pub use wire::{Direction, InFlightFate, Wire};
