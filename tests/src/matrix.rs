//! The fault matrix: whole installations under load, with one accident each, judged by nine invariants.
//!
//! Reading order: [`matrix_case`] is a case and the way it is played, [`catalogue`] lists all cases, and
//! [`accidents`] are the faults. A case happens in an [`environment`], which is set up by its [`setup`]: with
//! [`gateway_node`]s, another [`topology`], proxies in front of a service ([`service_relay`]), and [`clients`] that
//! run [`workload`]s of [`payment`]s and [`lease_work`]. The [`post_checks`] read the state that is left behind. The
//! [`run_log`] is the record of a run, the [`invariants`] judge that record, and the result is a [`verdict`].
//! [`report`] and [`report_page`] report the verdicts, and [`runner`] plays many cases.

pub mod accidents;
pub mod catalogue;
pub mod client_protocol;
pub mod clients;
pub mod environment;
pub mod gateway_node;
pub mod invariants;
mod lease_work;
pub mod level;
pub mod matrix_case;
pub mod payment;
mod post_checks;
pub mod report;
pub mod report_page;
pub mod run_log;
pub mod runner;
pub mod service_relay;
pub mod setup;
mod topology;
pub mod verdict;
pub mod workload;
