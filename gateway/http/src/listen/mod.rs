//! Takes connections and serves HTTP on them, until told to drain.
//!
//! [`door`] accepts connections and finds each a place. [`accepted`] finds out the client and the protocol. [`speak`]
//! serves the connection; [`responder`] is the trait that answers.

mod accepted;
mod answered;
pub mod certificates;
mod detect;
mod door;
mod facing;
pub mod farewell;
mod heads;
pub mod identity;
pub mod metrics;
mod paced;
mod places;
mod proxied;
pub mod responder;
mod seldom;
mod speak;
pub mod time_limit;

pub use self::{door::Acceptor, facing::ConnectionService, places::ConnectionRejection};
