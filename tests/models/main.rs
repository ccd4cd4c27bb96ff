//! Models of the protocol: every interleaving of a few gateways, a guard and their accidents is tried.
//!
//! [`promela`] has SPIN check the models in `spin/`. [`fence`] has the same protocol as a state machine in Rust. Both
//! are also run with one rule left out at a time. They must then find the schedule that the rule prevents.

mod fence;
mod promela;
mod spin;
