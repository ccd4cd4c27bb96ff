//! Models of the protocol: every interleaving of a few gateways, a guard and their accidents is tried.
//!
//! [`promela`] has the models in `spin/` checked by SPIN. Each is also run with one rule taken away at a time, and must then find the schedule that the rule is there for.

mod promela;
mod spin;
