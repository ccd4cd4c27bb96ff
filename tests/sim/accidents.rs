//! Each accident is what its name says.
