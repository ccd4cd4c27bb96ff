//! A ZooKeeper in memory: in simulated time, repeatable, and with every accident on demand.
//!
//! It stands behind the gateway's own seam, [`fencegate_lock::session::link`], and answers as a real server does: the
//! tests in `sim/` ask both the same questions. Start with [`SimEnsemble::start`] inside a `LocalSet`, make an
//! [`SimEnsemble::wire`], give the [`SimEnsemble::client`] on it to the gateway, and hurt the [`Wire`].
//!
//! Reading order: [`tree`] holds the nodes, [`request`] is what can be asked of them, [`server`] puts sessions and
//! [`watches`] around them; none of these knows the time. [`ensemble`] brings the clock and the accidents of all,
//! [`cable`] the accidents of one client. [`conversation`] is what the client library does, with its [`watchers`] and
//! its [`pipe`]s; [`session`] is what the gateway sees of it. [`dice`] makes what is random repeatable.

pub mod cable;
mod conversation;
pub mod dice;
pub mod ensemble;
mod pipe;
mod request;
mod server;
pub mod session;
mod tree;
mod watchers;
mod watches;
mod znode_path;

pub use cable::{Direction, InFlightFate, Wire};
pub use dice::SeededRng;
pub use ensemble::{EnsembleSettings, SimEnsemble};
pub use session::{SimClient, SimSession};
