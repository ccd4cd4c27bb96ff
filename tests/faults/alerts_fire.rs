//! Alerts that take more than some seconds to fire or to end, even with the [hurried] rules. The other alerts are
//! tested among the promises.
//!
//! [hurried]: fencegate_tests::prometheus::hurried

mod databases;
mod guards;
mod locks;
