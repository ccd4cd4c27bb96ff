//! The values that other programs read from the parts of a request from which keys are made, and the spellings that
//! they take for one database row. The real programs run, their readings are stored as data, and the gateway reads
//! the same texts.

pub mod key_reader;
pub mod merged;
pub mod programs;
pub mod reading;
pub mod rows;
