//! Begins the next era of an installation: all tokens from then on are larger than every one before.

use super::{
    era::{self, Era, Meta, NoFloor, Unreadable},
    link::{Failed, Fault, Kind, Link, Step},
    paths::Paths,
};
use crate::randomness::Randomness;

/// How far the new base lies above everything that is known: gateways write down what they have seen up to a second
/// late, and a restored ensemble has given out more than its floor says.
pub const STEP: u64 = 1 << 32;

/// No base beyond it: czxids have to fit above.
const HIGHEST_BASE: u64 = 1 << 62;

/// Why there is no new era.
#[derive(Debug, thiserror::Error)]
pub enum NotBumped {
    #[error(
        "gateways are registered below {folder}: {names}; their tokens and those of the new era would come in any order, \
         so stop all of them first (`fencegate drain`), or wait until the session of one that was killed has ended"
    )]
    Registered { folder: String, names: String },
    #[error(
        "an epoch of {0} leaves no room for tokens: it is a mistake, or the installation has to be made anew"
    )]
    TooHigh(u64),
    #[error("{path} was changed by somebody else meanwhile; look at it with `era show`, and repeat")]
    Changed { path: String },
    #[error("write {path}: {source}")]
    Write { path: String, source: Failed },
    #[error(
        "the answer of ZooKeeper was lost, and what became of it cannot be read; look with `era show`, and repeat"
    )]
    Unsettled(#[source] Unreadable),
    #[error(transparent)]
    Floor(#[from] NoFloor),
}

/// The highest epoch that is known: by ZooKeeper, and `seen` by anybody else.
///
/// # Errors
/// Nothing was changed, but for a node that was made and removed.
pub async fn highest(
    link: &impl Link,
    paths: &Paths,
    era: &Era,
    seen: u64,
    randomness: &dyn Randomness,
) -> Result<u64, NotBumped> {
    let floor = era::floor(link, paths, era, randomness).await?;
    Ok(floor.max(seen).max(era.meta.suspect.unwrap_or_default()))
}

/// Begins the era after `era`, with a base above `highest`, if no gateway is registered: in one transaction with a look
/// that nobody is. Gateways that wait for it take it up by themselves. `name`: that of an installation that was wiped,
/// which is to go on here.
///
/// # Errors
/// There is no new era, but where the error says that this is not known.
pub async fn bump(
    link: &impl Link,
    paths: &Paths,
    era: &Era,
    highest: u64,
    name: Option<&str>,
) -> Result<Meta, NotBumped> {
    let base = highest.checked_add(STEP).filter(|base| *base <= HIGHEST_BASE);
    let base = base.ok_or(NotBumped::TooHigh(highest))?;
    let (meta, members) = (paths.meta(), paths.members());
    let uuid = name.unwrap_or(&era.meta.uuid).to_owned();
    let next = Meta { uuid, era: era.meta.era.saturating_add(1), base, suspect: None, ..era.meta.clone() };
    let data = serde_json::to_vec(&next).expect("plain fields serialise");
    let steps = [
        Step::Check { path: &meta, version: era.version },
        // Refused while somebody is below it: nobody registers between the look and the new base.
        Step::Delete { path: &members, version: None },
        Step::Create { path: &members, data: b"", kind: Kind::Persistent },
        Step::Set { path: &meta, data: &data },
    ];
    match link.commit(&steps).await {
        Ok(_) => Ok(next),
        Err(Failed { step: Some(0), fault: Fault::BadVersion | Fault::NoNode }) => {
            Err(NotBumped::Changed { path: meta })
        }
        Err(Failed { fault: Fault::NotEmpty, .. }) => Err(registered(link, members).await),
        Err(Failed { fault: Fault::Ambiguous(_), .. }) => settle(link, paths, next).await,
        Err(source) => Err(NotBumped::Write { path: meta, source }),
    }
}

/// The answer was lost: what is there now is what became of it. The connection is another one, so the transaction was
/// done before it or never will be.
async fn settle(link: &impl Link, paths: &Paths, next: Meta) -> Result<Meta, NotBumped> {
    let path = paths.meta();
    let synced = link.sync(&path).await;
    synced.map_err(|source| NotBumped::Unsettled(Unreadable::Fault { path: path.clone(), source }))?;
    let now = era::read(link, paths).await.map_err(NotBumped::Unsettled)?;
    if now.meta == next { Ok(next) } else { Err(NotBumped::Changed { path }) }
}

async fn registered(link: &impl Link, folder: String) -> NotBumped {
    // For the eye only: the transaction has looked.
    let names = link.children(&folder).await.unwrap_or_default();
    NotBumped::Registered { folder, names: names.join(", ") }
}
