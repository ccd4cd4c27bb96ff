//! Collects what is known about one request until its answer is over, and reports it then.

use std::{
    rc::Rc,
    time::{Instant, SystemTime},
};

use fencegate_http::{body::observer::Observer, peer::ConnectionInfo};
use hyper::{Method, StatusCode, Uri};

use super::{
    audience::PlanSinks,
    exchange::{RequestRecord, ResponseRecord, cut},
};
use crate::{
    notes::RequestContext,
    refusal::{Outcome, Reason},
};

/// What is known about one request so far. Dropping it sends the report.
pub struct RequestReporter {
    audience: Rc<PlanSinks>,
    exchange: RequestRecord,
}

impl RequestReporter {
    pub fn begin(
        audience: &Rc<PlanSinks>,
        method: &Method,
        target: &Uri,
        peer: &Rc<ConnectionInfo>,
        notes: &Rc<RequestContext>,
    ) -> Self {
        let exchange = RequestRecord {
            method: method.clone(),
            // The query is left out: it may contain secrets and names.
            path: cut(target.path()),
            route: None,
            began: Instant::now(),
            at: SystemTime::now(),
            peer: peer.clone(),
            notes: notes.clone(),
            shown: audience.keys,
            answered: None,
            sent: 0,
            complete: false,
        };
        Self { audience: audience.clone(), exchange }
    }

    pub fn answered(&mut self, route: &str, status: StatusCode, outcome: Outcome, reason: Option<Reason>) {
        let after = self.exchange.began.elapsed();
        self.exchange.route = Some(route.to_owned());
        self.exchange.answered = Some(ResponseRecord { status, outcome, reason, after });
    }
}

impl Observer for RequestReporter {
    fn gives(&mut self, bytes: usize) {
        self.exchange.sent += bytes as u64;
    }

    fn complete(&mut self) {
        self.exchange.complete = true;
    }
}

impl Drop for RequestReporter {
    fn drop(&mut self) {
        self.audience.tell(&self.exchange);
    }
}
