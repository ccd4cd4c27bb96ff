//! Where the lock of a key lies in ZooKeeper and how its nodes are called: as ours are, or as those of programs that take
//! such locks already.

use std::sync::Arc;

use crate::{
    key::{BadKey, KeyTemplate, LockPath, ResourceKey},
    permits::Permits,
};

/// How the nodes of a lock are called, and which of them stands before which.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Ours.
    #[default]
    Native,
    Foreign(Foreign),
}

/// The layouts of other programs. None of them compares tokens or knows of our eras.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Foreign {
    /// Apache Curator's `InterProcessMutex`.
    CuratorMutex,
    /// Apache Curator's `InterProcessReadWriteLock`.
    CuratorReadWrite,
    /// kazoo's `Lock`, `WriteLock` and `ReadLock`.
    Kazoo,
    /// One ephemeral node that every contender tries to make.
    ExclusiveNode,
}

/// Where a fence has the locks of its keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Placing {
    /// Below the root of the installation, under a name that is made of the key.
    #[default]
    Native,
    /// In the same place, and several hold a key at once.
    Semaphore { permits: Permits },
    /// Where other programs have them.
    Foreign { layout: Foreign, path: LockPath },
}

/// Where the lock of one key lies: a key has one site, and all that ask for it agree in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum LockSite {
    #[default]
    Native,
    /// In the place of a native lock. It is only exclusive, for one key alone, and not kept between requests; the
    /// [key of its last permit](ResourceKey::of_permit) is not too long.
    Semaphore { permits: Permits },
    /// `path`: of the parent of the lock nodes; with [`Foreign::ExclusiveNode`], of the node itself.
    Foreign { layout: Foreign, path: Arc<str> },
}

impl Layout {
    /// As it stands in a policy.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("native", Self::Native),
        ("curator-mutex", Self::Foreign(Foreign::CuratorMutex)),
        ("curator-rw", Self::Foreign(Foreign::CuratorReadWrite)),
        ("kazoo", Self::Foreign(Foreign::Kazoo)),
        ("exclusive-node", Self::Foreign(Foreign::ExclusiveNode)),
    ];

    pub fn foreign(self) -> Option<Foreign> {
        match self {
            Self::Native => None,
            Self::Foreign(layout) => Some(layout),
        }
    }

    pub fn word(self) -> &'static str {
        let known = Self::WORDS.into_iter().find(|(_, layout)| *layout == self);
        known.expect("every layout has a word").0
    }
}

impl Foreign {
    pub fn word(self) -> &'static str {
        Layout::Foreign(self).word()
    }

    /// Some of its nodes hold together.
    pub fn shares(self) -> bool {
        matches!(self, Self::CuratorReadWrite | Self::Kazoo)
    }

    /// Contenders stand in a line that a holder can see.
    pub fn has_line(self) -> bool {
        self != Self::ExclusiveNode
    }
}

impl Placing {
    pub fn layout(&self) -> Layout {
        match self {
            Self::Native | Self::Semaphore { .. } => Layout::Native,
            Self::Foreign { layout, .. } => Layout::Foreign(*layout),
        }
    }

    pub fn permits(&self) -> Option<Permits> {
        match self {
            Self::Semaphore { permits } => Some(*permits),
            Self::Native | Self::Foreign { .. } => None,
        }
    }

    /// Of a key that `template` has made. A key tells the values that it was made of, so one key has one site.
    ///
    /// # Errors
    /// These values make no path that ZooKeeper would take, or leave no room for the number of a permit.
    pub fn site(&self, template: &KeyTemplate, key: &ResourceKey) -> Result<LockSite, BadKey> {
        match self {
            Self::Native => Ok(LockSite::Native),
            Self::Semaphore { permits } => LockSite::semaphore(key, *permits).ok_or(BadKey::TooLong),
            Self::Foreign { layout, path } => {
                Ok(LockSite::Foreign { layout: *layout, path: path.expand(template, key)?.into() })
            }
        }
    }
}

impl LockSite {
    /// Where several hold `key` at once; `None` where the keys of its permits would be too long.
    pub fn semaphore(key: &ResourceKey, permits: Permits) -> Option<Self> {
        key.of_permit(permits.last()).map(|_| Self::Semaphore { permits })
    }

    pub fn permits(&self) -> Option<Permits> {
        match self {
            Self::Semaphore { permits } => Some(*permits),
            Self::Native | Self::Foreign { .. } => None,
        }
    }

    pub fn layout(&self) -> Layout {
        match self {
            Self::Native | Self::Semaphore { .. } => Layout::Native,
            Self::Foreign { layout, .. } => Layout::Foreign(*layout),
        }
    }
}
