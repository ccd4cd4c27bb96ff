//! The series of one route, looked up once for each worker.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use fencegate_policies::plan::LockMode;
use fencegate_process::gauge_guard::GaugeGuard;
use fencegate_refusal::RefusalReason;
use hyper::StatusCode;
use prometheus::{Histogram, IntCounter, IntGauge};

use super::{
    labels::{AcquireLabel, MODES, PeerForwardLabel, status_class},
    requests::{RequestMetricFamilies, RouteWaitTracker, RouteWaiterGuard},
};

/// The series of one route, as one worker uses them. Each worker has its own reference counts, so
/// that workers do not contend for them.
pub struct RouteMetrics {
    all: Arc<RequestMetricFamilies>,
    name: Arc<str>,
    seconds: Histogram,
    in_flight: Rc<IntGauge>,
    waiters: Rc<IntGauge>,
    tunnels: Rc<IntGauge>,
    waits: Arc<RouteWaitTracker>,
    /// The number of held locks, by mode.
    held: [Rc<IntGauge>; 2],
    warm: [IntCounter; 2],
    hold: Rc<Histogram>,
    wait: Histogram,
    handoffs: IntCounter,
    /// The counters of the statuses seen so far.
    codes: RefCell<Vec<(StatusCode, IntCounter)>>,
}

impl RouteMetrics {
    pub(super) fn new(all: Arc<RequestMetricFamilies>, name: Arc<str>, waits: Arc<RouteWaitTracker>) -> Self {
        let label: &[&str] = &[&name];
        Self {
            seconds: all.seconds.local().with_label_values(label),
            in_flight: Rc::new(all.in_flight.local().with_label_values(label)),
            waiters: Rc::new(all.waiters.with_label_values(label)),
            tunnels: Rc::new(all.tunnels.with_label_values(label)),
            waits,
            held: MODES.map(|mode| Rc::new(all.held.local().with_label_values(&[&*name, mode.as_str()]))),
            warm: MODES.map(|mode| {
                all.acquisitions.local().with_label_values(&[&*name, mode.as_str(), "warm", "no"])
            }),
            hold: Rc::new(all.lock_hold.local().with_label_values(label)),
            wait: all.lock_wait.local().with_label_values(label),
            handoffs: all.handoffs.with_label_values(label),
            codes: RefCell::default(),
            all,
            name,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Records the answer to a request.
    pub fn record_response(&self, status: StatusCode, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        let mut codes = self.codes.borrow_mut();
        match codes.iter().find(|(known, _)| *known == status) {
            Some((_, counter)) => counter.inc(),
            None => {
                // A status that is not registered is counted by its class, because an upstream
                // could send any number.
                let known = status.canonical_reason().is_some();
                let code = if known { status.as_str() } else { status_class(status) };
                let counter = self.all.requests.local().with_label_values(&[&*self.name, code]);
                counter.inc();
                codes.push((status, counter));
            }
        }
    }

    /// Records that the client disconnected before its answer. This is counted under status 499, as
    /// nginx does.
    pub fn record_client_disconnect(&self, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        self.all.requests.local().with_label_values(&[&*self.name, "499"]).inc();
    }

    pub fn record_rejection(&self, reason: RefusalReason) {
        self.all.rejections.with_label_values(&[&*self.name, reason.word()]).inc();
    }

    pub fn record_forward(&self, result: PeerForwardLabel) {
        self.all.forwarded.with_label_values(&[&*self.name, result.as_str()]).inc();
    }

    pub fn record_unknown_outcome(&self) {
        self.all.outcome_unknown.with_label_values(&[&self.name]).inc();
    }

    pub fn track_in_flight(&self) -> GaugeGuard {
        GaugeGuard::new(&self.in_flight)
    }

    pub fn track_tunnel(&self) -> GaugeGuard {
        GaugeGuard::new(&self.tunnels)
    }

    pub fn track_waiter(&self) -> RouteWaiterGuard {
        self.waits.enter(GaugeGuard::new(&self.waiters))
    }

    pub fn start_hold(&self, mode: LockMode) -> HoldMetricsGuard {
        HoldMetricsGuard {
            _held: GaugeGuard::new(&self.held[mode as usize]),
            seconds: self.hold.clone(),
            since: Instant::now(),
        }
    }

    pub fn record_acquire(&self, result: AcquireLabel<'_>, mode: LockMode, waited: Duration) {
        if let AcquireLabel::Warm = result {
            // On the hot path no series is looked up.
            self.wait.observe(0.0);
            return self.warm[mode as usize].inc();
        }
        if let AcquireLabel::HandedOver = result {
            self.handoffs.inc();
        }
        let (result, contended) = result.result_and_contended();
        if result == "granted" {
            self.wait.observe(waited.as_secs_f64());
        }
        self.all
            .acquisitions
            .local()
            .with_label_values(&[&*self.name, mode.as_str(), result, contended])
            .inc();
    }
}

/// Counts a lock as held until this is dropped.
pub struct HoldMetricsGuard {
    _held: GaugeGuard,
    seconds: Rc<Histogram>,
    since: Instant,
}

impl Drop for HoldMetricsGuard {
    fn drop(&mut self) {
        self.seconds.observe(self.since.elapsed().as_secs_f64());
    }
}
