//! The word that a store has gone elsewhere, and what it gives away of each key before.

use fencegate_policies::key::ResourceKey;
use serde::{Deserialize, Serialize};

use super::change::{Epochs, WholeMarks};

/// Where the store of a file has gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departed {
    /// Names the move: what it has made says the same.
    pub id: String,
    /// For people.
    pub to: String,
}

/// What the file remembers of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyMarks {
    pub(crate) key: ResourceKey,
    pub(crate) epochs: Epochs,
    /// After an orderly end.
    pub(crate) whole: Option<WholeMarks>,
}
