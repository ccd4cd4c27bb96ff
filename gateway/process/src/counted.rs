//! A gauge that counts living values.

use std::rc::Rc;

use prometheus::IntGauge;

/// Adds one to a gauge while it lives.
pub struct Counted(Rc<IntGauge>);

impl Counted {
    pub fn up(gauge: &Rc<IntGauge>) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
