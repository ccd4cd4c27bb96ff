//! One request that is to be told of: kept by its answer, and told when that is over, however it ends. Who is told is
//! what the plan says; no request waits for any of them.

mod audience;
mod entry;
mod exchange;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "otlp")]
mod spans;
mod stdout;

pub use self::{
    audience::{Audience, SENDS_SPANS, Tellers},
    entry::Entry,
};
