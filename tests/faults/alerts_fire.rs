//! Alerts that take many seconds to fire or to end, even with the [hurried] rules. The other alerts are tested by
//! `promises`.
//!
//! [hurried]: fencegate_tests::prometheus::hurried

mod databases;
mod guards;
mod locks;
