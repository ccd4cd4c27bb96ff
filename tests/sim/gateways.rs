//! Gateways.
