//! Reports each request when its answer is over, however the answer ends. The plan says who receives the reports. No
//! request waits for a receiver.

mod audience;
mod entry;
mod exchange;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "otlp")]
mod spans;
mod stdout;

pub use self::{
    audience::{PlanSinks, SENDS_SPANS, TelemetrySinks},
    entry::RequestReporter,
};
