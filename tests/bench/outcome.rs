//! What a step of a measurement gives, or what went wrong, told to whoever started us.

use std::error::Error;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;
