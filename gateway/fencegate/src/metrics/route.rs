//! The series of one route, looked up once for each worker.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use fencegate_policies::plan::Mode;
use fencegate_process::counted::GaugeGuard;
use hyper::StatusCode;
use prometheus::{Histogram, IntCounter, IntGauge};

use super::{
    requests::RequestFamilies,
    waits::{RouteWaiters, WaiterGuard},
    words::{AcquireLabel, ForwardLabel, MODES, class},
};
use crate::refusal::Reason;

/// The series of one route. Each worker has its own reference counts, so that workers share none.
pub struct RouteMetrics {
    all: Arc<RequestFamilies>,
    name: Arc<str>,
    seconds: Histogram,
    in_flight: Rc<IntGauge>,
    waiters: Rc<IntGauge>,
    tunnels: Rc<IntGauge>,
    waits: Arc<RouteWaiters>,
    /// By mode.
    held: [Rc<IntGauge>; 2],
    warm: [IntCounter; 2],
    hold: Rc<Histogram>,
    wait: Histogram,
    handoffs: IntCounter,
    /// The statuses seen so far.
    codes: RefCell<Vec<(StatusCode, IntCounter)>>,
}

impl RouteMetrics {
    pub(super) fn new(all: Arc<RequestFamilies>, name: Arc<str>, waits: Arc<RouteWaiters>) -> Self {
        let label: &[&str] = &[&name];
        Self {
            seconds: all.seconds.here().with_label_values(label),
            in_flight: Rc::new(all.in_flight.here().with_label_values(label)),
            waiters: Rc::new(all.waiters.with_label_values(label)),
            tunnels: Rc::new(all.tunnels.with_label_values(label)),
            waits,
            held: MODES.map(|mode| Rc::new(all.held.here().with_label_values(&[&*name, mode.word()]))),
            warm: MODES
                .map(|mode| all.acquisitions.here().with_label_values(&[&*name, mode.word(), "warm", "no"])),
            hold: Rc::new(all.lock_hold.here().with_label_values(label)),
            wait: all.lock_wait.here().with_label_values(label),
            handoffs: all.handoffs.with_label_values(label),
            codes: RefCell::default(),
            all,
            name,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A request was answered.
    pub fn answered(&self, status: StatusCode, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        let mut codes = self.codes.borrow_mut();
        match codes.iter().find(|(known, _)| *known == status) {
            Some((_, counter)) => counter.inc(),
            None => {
                // An unknown status is counted by its class: an upstream could send any number.
                let known = status.canonical_reason().is_some();
                let code = if known { status.as_str() } else { class(status) };
                let counter = self.all.requests.here().with_label_values(&[&*self.name, code]);
                counter.inc();
                codes.push((status, counter));
            }
        }
    }

    /// The client went away before its answer: counted under 499, as nginx does.
    pub fn abandoned(&self, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        self.all.requests.here().with_label_values(&[&*self.name, "499"]).inc();
    }

    pub fn rejected(&self, reason: Reason) {
        self.all.rejections.with_label_values(&[&*self.name, reason.word()]).inc();
    }

    pub fn forwarded(&self, result: ForwardLabel) {
        self.all.forwarded.with_label_values(&[&*self.name, result.word()]).inc();
    }

    pub fn outcome_unknown(&self) {
        self.all.outcome_unknown.with_label_values(&[&self.name]).inc();
    }

    pub fn in_flight(&self) -> GaugeGuard {
        GaugeGuard::up(&self.in_flight)
    }

    pub fn tunnel(&self) -> GaugeGuard {
        GaugeGuard::up(&self.tunnels)
    }

    pub fn waiting(&self) -> WaiterGuard {
        self.waits.enter(GaugeGuard::up(&self.waiters))
    }

    pub fn holding(&self, mode: Mode) -> HoldTimer {
        HoldTimer {
            _held: GaugeGuard::up(&self.held[mode as usize]),
            seconds: self.hold.clone(),
            since: Instant::now(),
        }
    }

    pub fn acquired(&self, result: AcquireLabel<'_>, mode: Mode, waited: Duration) {
        if let AcquireLabel::Warm = result {
            // The hot path needs no lookup.
            self.wait.observe(0.0);
            return self.warm[mode as usize].inc();
        }
        if let AcquireLabel::HandedOver = result {
            self.handoffs.inc();
        }
        let (result, contended) = result.words();
        if result == "granted" {
            self.wait.observe(waited.as_secs_f64());
        }
        self.all.acquisitions.here().with_label_values(&[&*self.name, mode.word(), result, contended]).inc();
    }
}

/// Counts a lock as held while this lives.
pub struct HoldTimer {
    _held: GaugeGuard,
    seconds: Rc<Histogram>,
    since: Instant,
}

impl Drop for HoldTimer {
    fn drop(&mut self) {
        self.seconds.observe(self.since.elapsed().as_secs_f64());
    }
}
