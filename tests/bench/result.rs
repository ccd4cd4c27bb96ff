//! The result of a step of a measurement, or the error that the caller of the program sees.

use std::error::Error;

pub(crate) type BenchResult<T> = Result<T, Box<dyn Error>>;
