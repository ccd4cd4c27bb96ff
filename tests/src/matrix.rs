//! The fault matrix: whole installations under load, with one accident each, judged by nine invariants.
//!
//! Reading order: [`experiment`] is a case and how it is played, [`catalogue`] has all of them, [`accidents`] do the harm. A case
//! happens in a [`laboratory`], which is set up as its [`apparatus`] says, of [`station`]s and other [`furniture`], with a [`clientele`] that has its
//! [`errand`]s; [`aftermath`] is what is left of it. [`chronicle`] is what was seen, [`invariants`] judge it, a [`ruling`] comes of it, [`tally`] and [`histogram`] report. [`series`] plays many of them.

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
pub mod level;
pub mod ruling;
pub mod series;
pub mod spoken;
pub mod station;
pub mod tally;
