//! The memory for buffered bodies: one budget for all workers, and a refusal when it is used up.

mod allowance;
mod budget;
pub mod metrics;
mod pieces;

pub use self::{
    allowance::{Allowance, allowance},
    budget::{Budget, Full, Room},
    pieces::{NoRoom, Pieces},
};
