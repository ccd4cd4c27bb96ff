//! Alerts whose accident, or whose end, takes more than some seconds also where the rules are [hurried]. The others are
//! among the promises.
//!
//! [hurried]: fencegate_tests::prometheus::hurried

mod databases;
mod guards;
mod locks;
