//! Models of the protocol: every interleaving of a few gateways, a guard and their accidents is tried.
//!
//! [`promela`] has the models in `spin/` checked by SPIN, [`fence`] has the same protocol as a state machine in Rust.
//! Both are also run with one rule taken away at a time, and must then find the schedule that the rule is there for.

mod fence;
mod promela;
mod spin;
