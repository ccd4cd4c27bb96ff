//! The marker of a store that was moved elsewhere, and the rows that it exports.

use fencegate_policies::key::ResourceKey;
use serde::{Deserialize, Serialize};

use super::change::{KeyWatermarks, WatermarkEpochs};

/// Where the store of this file was moved to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedMarker {
    /// Names the move; the copy has the same name.
    pub id: String,
    /// The new location, for display only.
    pub to: String,
}

/// The stored state of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    pub key: ResourceKey,
    pub epochs: WatermarkEpochs,
    /// Present after a clean stop.
    pub whole: Option<KeyWatermarks>,
}
