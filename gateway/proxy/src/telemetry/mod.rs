//! Reports each request when its answer is over, however the answer ends. The plan names the receivers of the
//! reports. No request waits for a receiver.

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
