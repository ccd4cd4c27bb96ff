//! Alerts that take more than some seconds to fire or to end, even if each time of a rule is a sixtieth. The other
//! alerts are tested among the promises.
//!
//! [`fencegate_tests::prometheus::hurried`] shortens the times.

mod databases;
mod guards;
mod locks;
