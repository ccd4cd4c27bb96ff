//! The result type of all steps of a measurement. The caller of the program sees the error.

use std::error::Error;

pub(crate) type BenchResult<T> = Result<T, Box<dyn Error>>;
