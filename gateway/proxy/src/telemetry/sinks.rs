//! The receivers of reports about requests: the access log, and a collector of spans.

use std::{io, rc::Rc};

use fencegate_metrics::AllMetricFamilies;
use fencegate_policies::plan::{AccessLogTarget, KeyVisibility, LogSettings};

#[cfg(feature = "otlp")]
use super::otlp;
use super::{record::RequestTelemetryRecord, stdout::AccessLog};

/// All receivers of this process. It can be used from any thread, and is cheap to clone.
#[derive(Debug, Clone)]
pub struct TelemetrySinks {
    log: AccessLog,
    #[cfg(feature = "otlp")]
    spans: otlp::SpanExporter,
}

/// The receivers that a plan configures.
#[derive(Debug)]
pub struct PlanTelemetrySinks {
    /// The form in which the receivers get keys.
    pub(super) keys: KeyVisibility,
    log: Option<AccessLog>,
    #[cfg(feature = "otlp")]
    spans: Option<otlp::PlanSpanExporter>,
}

impl TelemetrySinks {
    /// # Errors
    /// Returns an error if the machine cannot start a thread for the receivers.
    pub fn start(metrics: &AllMetricFamilies) -> io::Result<Self> {
        Ok(Self {
            log: AccessLog::start(metrics),
            #[cfg(feature = "otlp")]
            spans: otlp::SpanExporter::start(metrics.spans_lost())?,
        })
    }

    /// Returns the receivers that the plan configures; `None` if it configures none.
    pub fn plan_sinks(&self, log: &LogSettings) -> Option<Rc<PlanTelemetrySinks>> {
        let audience = PlanTelemetrySinks {
            keys: log.keys,
            log: (log.access == AccessLogTarget::Stdout).then(|| self.log.clone()),
            #[cfg(feature = "otlp")]
            spans: log.traces.as_ref().map(|traces| self.spans.for_traces(traces)),
        };
        audience.has_any_sink().then(|| Rc::new(audience))
    }

    /// Waits a short time until all reports have been sent. It must be called when nothing reports any more.
    pub fn flush_telemetry(self) {
        #[cfg(feature = "otlp")]
        self.spans.flush_spans();
    }
}

impl PlanTelemetrySinks {
    #[cfg(feature = "otlp")]
    fn has_any_sink(&self) -> bool {
        self.log.is_some() || self.spans.is_some()
    }

    #[cfg(not(feature = "otlp"))]
    fn has_any_sink(&self) -> bool {
        self.log.is_some()
    }

    pub(super) fn report(&self, exchange: &RequestTelemetryRecord) {
        if let Some(log) = &self.log {
            log.write_access_log(exchange);
        }
        #[cfg(feature = "otlp")]
        if let Some(spans) = &self.spans {
            spans.enqueue_spans(exchange);
        }
    }
}
