//! How other programs read the parts of a request of which keys are made, and what they take for one row. They run as real programs,
//! their stored readings are data, and the gateway reads the same texts.

pub mod key_reader;
pub mod merged;
pub mod programs;
pub mod reading;
pub mod rows;
