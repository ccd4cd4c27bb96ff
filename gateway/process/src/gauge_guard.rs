//! A gauge that counts the values that exist.

use std::rc::Rc;

use prometheus::IntGauge;

/// Adds one to a gauge, and takes it off when this is dropped.
pub struct GaugeGuard(Rc<IntGauge>);

impl GaugeGuard {
    pub fn new(gauge: &Rc<IntGauge>) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
