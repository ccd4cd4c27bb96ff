//! The memory for buffered bodies and heads of requests: one budget for all workers, and a refusal when it is used up.

mod allowance;
mod budget;
mod head;
pub mod metrics;
mod pieces;

pub use self::{
    allowance::{MemoryAllowance, memory_allowance},
    budget::{Budget, BudgetExceededError, BudgetReservation},
    head::{HeadMemory, HeadReservation},
    pieces::{AddChunkError, ChunkBuffer},
};
