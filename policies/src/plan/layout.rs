//! The place of a key's lock in ZooKeeper, and the names of its nodes: in our own layout, or in that of other
//! programs.

use std::sync::Arc;

use crate::{
    key::{ExtractKeyError, KeyTemplate, LockPathTemplate, ResourceKey},
    permits::PermitCount,
};

/// The naming and the order of the nodes of a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum LockLayout {
    /// Our own layout.
    #[default]
    Native,
    Foreign(ForeignLockLayout),
}

/// The layouts of other programs. These programs neither compare tokens nor have eras.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForeignLockLayout {
    /// Apache Curator's `InterProcessMutex`.
    CuratorMutex,
    /// Apache Curator's `InterProcessReadWriteLock`.
    CuratorReadWrite,
    /// kazoo's `Lock`, `WriteLock` and `ReadLock`.
    Kazoo,
    /// A single ephemeral node that every contender tries to make.
    ExclusiveNode,
}

/// The placement of the locks of a fence's keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LockPlacement {
    /// Below the root of the installation, under a name that is derived from the key.
    #[default]
    Native,
    /// Below the root of the installation; several holders share a key.
    Semaphore { permits: PermitCount },
    /// At a path that other programs use.
    Foreign { layout: ForeignLockLayout, path: LockPathTemplate },
}

/// The location of the lock of one key. Each key has the same location on every route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum LockLocation {
    #[default]
    Native,
    /// Below the root, with several holders. A semaphore has exclusive mode and one key, and is not kept between
    /// requests. The [key of its last permit](ResourceKey::for_permit) is not too long.
    Semaphore { permits: PermitCount },
    /// `path`: the path of the parent of the lock nodes; with [`ForeignLockLayout::ExclusiveNode`], that of the node
    /// itself.
    Foreign { layout: ForeignLockLayout, path: Arc<str> },
}

impl LockLayout {
    /// The words for the layouts in a policy.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("native", Self::Native),
        ("curator-mutex", Self::Foreign(ForeignLockLayout::CuratorMutex)),
        ("curator-rw", Self::Foreign(ForeignLockLayout::CuratorReadWrite)),
        ("kazoo", Self::Foreign(ForeignLockLayout::Kazoo)),
        ("exclusive-node", Self::Foreign(ForeignLockLayout::ExclusiveNode)),
    ];

    pub fn foreign_layout(self) -> Option<ForeignLockLayout> {
        match self {
            Self::Native => None,
            Self::Foreign(layout) => Some(layout),
        }
    }

    pub fn as_str(self) -> &'static str {
        let known = Self::WORDS.into_iter().find(|(_, layout)| *layout == self);
        known.expect("every layout has a word").0
    }
}

impl ForeignLockLayout {
    pub fn as_str(self) -> &'static str {
        LockLayout::Foreign(self).as_str()
    }

    /// Whether several of its nodes can hold the lock together.
    pub fn has_shared_mode(self) -> bool {
        matches!(self, Self::CuratorReadWrite | Self::Kazoo)
    }

    /// Whether contenders wait in a queue that a holder can see.
    pub fn has_queue(self) -> bool {
        self != Self::ExclusiveNode
    }
}

impl LockPlacement {
    pub fn layout(&self) -> LockLayout {
        match self {
            Self::Native | Self::Semaphore { .. } => LockLayout::Native,
            Self::Foreign { layout, .. } => LockLayout::Foreign(*layout),
        }
    }

    pub fn permits(&self) -> Option<PermitCount> {
        match self {
            Self::Semaphore { permits } => Some(*permits),
            Self::Native | Self::Foreign { .. } => None,
        }
    }

    /// The location of the lock of a key that `template` has made. The key shows its values, so each key has one
    /// location.
    ///
    /// # Errors
    /// Returns an error if the values form no path that ZooKeeper accepts, or if the key is too long for the
    /// number of a permit.
    pub fn site(&self, template: &KeyTemplate, key: &ResourceKey) -> Result<LockLocation, ExtractKeyError> {
        match self {
            Self::Native => Ok(LockLocation::Native),
            Self::Semaphore { permits } => {
                LockLocation::semaphore(key, *permits).ok_or(ExtractKeyError::TooLong)
            }
            Self::Foreign { layout, path } => {
                Ok(LockLocation::Foreign { layout: *layout, path: path.expand(template, key)?.into() })
            }
        }
    }
}

impl LockLocation {
    /// A semaphore for `key`; `None` if the keys of its permits would be too long.
    pub fn semaphore(key: &ResourceKey, permits: PermitCount) -> Option<Self> {
        key.for_permit(permits.last()).map(|_| Self::Semaphore { permits })
    }

    pub fn permits(&self) -> Option<PermitCount> {
        match self {
            Self::Semaphore { permits } => Some(*permits),
            Self::Native | Self::Foreign { .. } => None,
        }
    }

    pub fn layout(&self) -> LockLayout {
        match self {
            Self::Native | Self::Semaphore { .. } => LockLayout::Native,
            Self::Foreign { layout, .. } => LockLayout::Foreign(*layout),
        }
    }
}
