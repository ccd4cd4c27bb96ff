//! A command runs under its lock and never beyond it, whatever happens to the processes that supervise it, and the
//! exit code reports how it ended.

mod ends;
mod leads;
mod outlives;
mod passes;
mod through;
mod turns;
