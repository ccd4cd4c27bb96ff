//! A command runs under a lock and never beyond it, whatever becomes of those who watch over it, and whoever has it run is told
//! how it ended.

mod ends;
mod leads;
mod outlives;
mod passes;
mod through;
mod turns;
