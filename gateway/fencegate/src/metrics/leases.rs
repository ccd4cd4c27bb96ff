//! How many leases there are, and why they ended.

use fencegate_process::families::{Families, Family as _};
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

/// Of one gateway. Clones count together.
#[derive(Clone)]
pub struct LeaseMetrics {
    leases: IntGaugeVec,
    ended: IntCounterVec,
}
