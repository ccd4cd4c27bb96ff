//! What Fencegate promises, one module per promise.
