//! Takes connections and serves HTTP on them, until told to drain.
//!
//! [`door`] accepts and finds each a place, [`entry`] finds out who is there and what is spoken, [`speak`] serves it; who
//! answers is behind [`answers`].

mod answered;
pub mod answers;
pub mod certificates;
mod detect;
mod door;
mod entry;
mod facing;
pub mod farewell;
pub mod identity;
pub mod limit;
pub mod metrics;
mod paced;
mod places;
mod proxied;
mod speak;

pub use self::{door::Door, facing::Facing, places::Crowded};
