//! The memory for buffered bodies and heads of requests: one budget for all workers. A reservation beyond it is
//! refused.

mod allowance;
mod budget;
mod chunk_buffer;
mod head;
pub mod metrics;

pub use self::{
    allowance::{DefaultMemoryLimit, memory_allowance},
    budget::{MemoryBudget, MemoryBudgetExceededError, MemoryReservation},
    chunk_buffer::{AddChunkError, ChunkBuffer},
    head::{HeadMemoryBudget, HeadReservation},
};
