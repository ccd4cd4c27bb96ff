//! Collects the facts about one request until its answer is over, and reports them then.

use std::{
    rc::Rc,
    time::{Instant, SystemTime},
};

use fencegate_http::{body::BodyObserver, connection_info::ConnectionInfo};
use fencegate_refusal::{DispatchOutcome, RefusalReason};
use hyper::{Method, StatusCode, Uri};

use super::{
    record::{RequestTelemetryRecord, ResponseSummary, truncate},
    sinks::PlanTelemetrySinks,
};
use crate::request_context::RequestContext;

/// The facts about one request so far. Its drop sends the report.
pub struct RequestTelemetry {
    sinks: Rc<PlanTelemetrySinks>,
    record: RequestTelemetryRecord,
}

impl RequestTelemetry {
    pub fn begin(
        audience: &Rc<PlanTelemetrySinks>,
        method: &Method,
        target: &Uri,
        peer: &Rc<ConnectionInfo>,
        context: &Rc<RequestContext>,
    ) -> Self {
        let exchange = RequestTelemetryRecord {
            method: method.clone(),
            // The query is left out: it may contain secrets and names.
            path: truncate(target.path()),
            route: None,
            began: Instant::now(),
            at: SystemTime::now(),
            peer: peer.clone(),
            context: context.clone(),
            shown: audience.keys,
            response: None,
            sent: 0,
            complete: false,
        };
        Self { sinks: audience.clone(), record: exchange }
    }

    pub fn record_response(
        &mut self,
        route: &str,
        status: StatusCode,
        outcome: DispatchOutcome,
        reason: Option<RefusalReason>,
    ) {
        let after = self.record.began.elapsed();
        self.record.route = Some(route.to_owned());
        self.record.response = Some(ResponseSummary { status, outcome, reason, after });
    }
}

impl BodyObserver for RequestTelemetry {
    fn on_data(&mut self, bytes: usize) {
        self.record.sent += bytes as u64;
    }

    fn on_end(&mut self) {
        self.record.complete = true;
    }
}

impl Drop for RequestTelemetry {
    fn drop(&mut self) {
        self.sinks.report(&self.record);
    }
}
