//! Begins the next era of an installation: all tokens from then on are larger than every one before.

use fencegate_policies::token::LARGEST_JUMP;
use fencegate_process::randomness::Randomness;

use super::{
    era::{self, Era, MetaUnreadable, NoFloor},
    link::{Failed, Fault, Kind, Link, Step},
    paths::Paths,
};
use crate::meta::{HIGHEST_BASE, Meta, UNMARKED};
use crate::state::Progress;

/// How far the new base lies above every known epoch. The known ones may be too low: gateways save what they have seen
/// up to a second late, and a restored ensemble had given out more before.
pub const STEP: u64 = 1 << 32;

/// Why there is no new era.
#[derive(Debug, thiserror::Error)]
pub enum NotBumped {
    #[error(
        "gateways are registered below {folder}: {names}; their tokens and those of the new era would come in any order, \
         so stop all of them first (on each of them: `fencegate drain`), or wait until the session of one that was \
         killed has ended"
    )]
    Registered { folder: String, names: String },
    #[error(
        "an epoch of {0} leaves no room for tokens: it is a mistake, or the installation has to be made anew"
    )]
    TooHigh(u64),
    #[error(
        "--at-least {at_least} is more than 2^48 above {known}, the highest that is known here: if it is no mistake, \
         repeat with `--force`"
    )]
    Far { at_least: u64, known: u64 },
    #[error(
        "the first token of the new era would be {jump} above those before, because this ensemble's transactions have so \
         large numbers; a guard without tickets takes more than {LARGEST_JUMP} for forged, and needs a new store then: \
         repeat with `--force` if there is none, or to make new ones"
    )]
    Jump { jump: u64 },
    #[error("{path} was changed by somebody else meanwhile; look at it with `era show`, and repeat")]
    Changed { path: String },
    #[error("write {path}: {source}")]
    Write { path: String, source: Failed },
    #[error(
        "the answer of ZooKeeper was lost, and what became of it cannot be read; look with `era show`, and repeat"
    )]
    Unsettled(#[source] MetaUnreadable),
    #[error(transparent)]
    Floor(#[from] NoFloor),
}

/// What an operator asks for.
#[derive(Debug, Default)]
pub struct Asked<'a> {
    /// An epoch that was seen.
    pub at_least: u64,
    /// The name of an installation that was wiped, and is to go on here.
    pub name: Option<&'a str>,
    /// Go on although it is probably a mistake, or the guards would refuse the new tokens.
    pub force: bool,
}

/// The era that is to begin.
#[derive(Debug)]
pub struct Next {
    pub meta: Meta,
    /// The highest epoch that was known; the base lies above it.
    pub above: u64,
}

/// Computes the era after `era`, without beginning it. `seen`: what this machine remembers.
///
/// # Errors
/// It cannot be computed, or should not be begun. Nothing was changed; one node was made and removed.
pub async fn next(
    link: &impl Link,
    paths: &Paths,
    era: &Era,
    (seen, asked): (Option<&Progress>, &Asked<'_>),
    randomness: &dyn Randomness,
) -> Result<Next, NotBumped> {
    let floor = era::floor(link, paths, era, randomness).await.map_err(|why| match why {
        NoFloor::Make { source: Failed { step: Some(0), .. }, .. } => {
            NotBumped::Changed { path: paths.meta() }
        }
        why => NotBumped::Floor(why),
    })?;
    after(&era.meta, floor, seen, asked)
}

/// The era after the one in `meta`. `floor`: an epoch that no token so far exceeds.
fn after(meta: &Meta, floor: u64, seen: Option<&Progress>, asked: &Asked<'_>) -> Result<Next, NotBumped> {
    let Meta { uuid, era: number, base, suspect, .. } = meta;
    let (marked, marked_era) = suspect.as_ref().map_or((0, 0), |mark| (mark.highest, mark.era));
    let known = floor.max(marked).max(seen.map_or(0, |record| record.highest));
    let above = known.max(asked.at_least);
    // The floor contains the number of transactions so far, and each token of the new era adds that number once more.
    let jump = STEP.saturating_add(floor.saturating_sub(*base));
    if !asked.force && above - known > LARGEST_JUMP {
        return Err(NotBumped::Far { at_least: above, known });
    }
    if !asked.force && jump > LARGEST_JUMP {
        return Err(NotBumped::Jump { jump });
    }
    let last = (*number).max(marked_era).max(seen.map_or(0, |record| record.era));
    let meta = Meta {
        format: UNMARKED,
        uuid: asked.name.unwrap_or(uuid).to_owned(),
        era: last.saturating_add(1),
        base: base_above(above)?,
        suspect: None,
    };
    Ok(Next { meta, above })
}

/// # Errors
/// No base would fit above it.
pub fn base_above(highest: u64) -> Result<u64, NotBumped> {
    let base = highest.checked_add(STEP).filter(|base| *base <= HIGHEST_BASE);
    base.ok_or(NotBumped::TooHigh(highest))
}

/// Begins the era after `era`, if no gateway is registered: in one transaction with a look that nobody is. Gateways
/// that wait for it take it up by themselves.
///
/// # Errors
/// No new era was begun, unless the error says that this is not known.
pub async fn bump(link: &impl Link, paths: &Paths, era: &Era, next: Meta) -> Result<Meta, NotBumped> {
    let (meta, members) = (paths.meta(), paths.members());
    link.keep_access(&members).await.map_err(|source| NotBumped::Write {
        path: members.clone(),
        source: Failed { step: None, fault: source },
    })?;
    let data = serde_json::to_vec(&next).expect("plain fields serialise");
    let steps = [
        Step::Check { path: &meta, version: era.version },
        // The server refuses this while a member node is below it, so no gateway can register before the new base is
        // set.
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
        // If the session has ended, its last transaction may have been done as well.
        Err(Failed { fault: Fault::Ambiguous(_) | Fault::Over, .. }) => settle(link, paths, next).await,
        Err(source) => Err(NotBumped::Write { path: meta, source }),
    }
}

/// Finds out whether the transaction was done, after a lost answer. The connection is a new one by now, so the
/// transaction was done before or never will be.
async fn settle(link: &impl Link, paths: &Paths, next: Meta) -> Result<Meta, NotBumped> {
    let path = paths.meta();
    let synced = link.sync(&path).await;
    synced.map_err(|source| NotBumped::Unsettled(MetaUnreadable::Fault { path: path.clone(), source }))?;
    let now = era::read(link, paths).await.map_err(NotBumped::Unsettled)?;
    if now.meta == next { Ok(next) } else { Err(NotBumped::Changed { path }) }
}

async fn registered(link: &impl Link, folder: String) -> NotBumped {
    // The names are for the message only; the transaction has made the decision.
    let names = link.children(&folder).await.unwrap_or_default();
    NotBumped::Registered { folder, names: names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Suspicion;

    const NOTHING: Asked<'_> = Asked { at_least: 0, name: None, force: false };

    fn meta(era: u64, base: u64, suspect: Option<Suspicion>) -> Meta {
        Meta { format: 1, uuid: "ours".into(), era, base, suspect }
    }

    #[test]
    fn the_next_era_is_above_every_number_that_anybody_knows() {
        let seen = Progress { installation: "ours".into(), era: 7, highest: 900 };
        let mark = Suspicion { highest: 800, era: 9, by: "gw-1".into() };
        let told = |suspect, seen, asked| {
            let next = after(&meta(3, 10, suspect), 500, seen, asked).expect("an era");
            (next.meta.era, next.meta.base - STEP, next.meta.format, next.meta.suspect)
        };
        assert_eq!(told(None, None, &NOTHING), (4, 500, 1, None));
        assert_eq!(told(None, Some(&seen), &NOTHING), (8, 900, 1, None));
        assert_eq!(told(Some(mark.clone()), None, &NOTHING), (10, 800, 1, None));
        let asked = Asked { at_least: 1000, ..NOTHING };
        assert_eq!(told(Some(mark), Some(&seen), &asked), (10, 1000, 1, None));
    }

    #[test]
    fn an_epoch_far_above_all_that_are_known_has_to_be_meant() {
        let asked = |at_least, force| Asked { at_least, force, ..NOTHING };
        let told = |asked| after(&meta(0, 0, None), 500, None, &asked).map(|next| next.above);
        assert!(told(asked(500 + LARGEST_JUMP, false)).is_ok());
        assert!(matches!(told(asked(501 + LARGEST_JUMP, false)), Err(NotBumped::Far { known: 500, .. })));
        assert!(told(asked(501 + LARGEST_JUMP, true)).is_ok());
        assert!(matches!(told(asked(u64::MAX, true)), Err(NotBumped::TooHigh(_))));
    }

    /// Each token of the new era adds a transaction number to a base that already contains one.
    #[test]
    fn an_era_that_guards_without_tickets_would_not_believe_is_not_begun_unasked() {
        let base = 5 << 50;
        let told = |czxid, force| {
            let asked = Asked { force, ..NOTHING };
            after(&meta(2, base, None), base + czxid, None, &asked)
        };
        let furthest = LARGEST_JUMP - STEP;
        let next = told(furthest, false).expect("within what they believe");
        assert!(next.meta.base + furthest <= base + furthest + LARGEST_JUMP);
        assert!(matches!(told(furthest + 1, false), Err(NotBumped::Jump { .. })));
        assert!(told(furthest + 1, true).is_ok());
    }
}
