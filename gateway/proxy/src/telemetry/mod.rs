//! Reports each request when its answer is over, whether the answer was complete or not. The plan names the
//! receivers of the reports. No request waits for a receiver.

#[cfg(feature = "otlp")]
mod otlp;
mod record;
mod reporter;
mod sinks;
#[cfg(feature = "otlp")]
mod spans;
mod stdout;

pub use self::{
    reporter::RequestTelemetry,
    sinks::{PlanTelemetrySinks, TelemetrySinks},
};
