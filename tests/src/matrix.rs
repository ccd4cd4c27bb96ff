//! The fault matrix: whole installations under load, with one accident each, judged by nine invariants.
//!
//! Reading order: [`experiment`] is a case and how it is played, [`catalogue`] lists all cases, and [`accidents`] are
//! the faults. A case happens in a [`laboratory`], which is set up as its [`apparatus`] says: with [`station`]s, other
//! [`furniture`], with what stands before a service ([`relayed`]), and a [`clientele`] that runs [`errand`]s, which are [`payment`]s and [`lease_work`]. The
//! [`aftermath`] is the state that is left behind. The [`chronicle`] is the record of a run, the [`invariants`] judge
//! that record, and the result is a [`ruling`]. [`tally`] and [`histogram`] report the rulings, and [`series`] plays many cases.

pub mod accidents;
mod aftermath;
pub mod apparatus;
pub mod catalogue;
pub mod chronicle;
pub mod clientele;
pub mod errand;
pub mod experiment;
mod furniture;
pub mod histogram;
pub mod invariants;
pub mod laboratory;
mod lease_work;
pub mod level;
pub mod payment;
pub mod relayed;
pub mod ruling;
pub mod series;
pub mod spoken;
pub mod station;
pub mod tally;
