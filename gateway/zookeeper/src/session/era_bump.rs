//! Starts the next era of an installation: all tokens from then on are larger than all tokens before.

use fencegate_policies::token::LARGEST_JUMP;
use fencegate_process::randomness::Randomness;

use super::{
    client::{MultiError, MultiOp, NodeCreateMode, ZkClient, ZkError},
    era::{self, FindEpochFloorError, ReadInstallationMetaError, VersionedInstallationMeta},
    paths::ZkPaths,
};
use crate::installation::{HIGHEST_BASE, InstallationMeta, UNMARKED};
use crate::state::HighestEpochRecord;

/// How far the new base lies above every known epoch. The known ones may be too low: gateways save the highest epoch up
/// to a second late, and a restored ensemble had assigned more before.
pub(crate) const BASE_GAP: u64 = 1 << 32;

/// Errors of an era bump.
#[derive(Debug, thiserror::Error)]
pub enum BumpEraError {
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
        "the first token of the new era would be {jump} above those before, because the transaction numbers of \
         this ensemble are that large; a guard without tickets refuses a jump of more than {LARGEST_JUMP} as \
         forged, and needs a new store then: repeat with `--force` if there is no such guard, or if its store \
         will be made anew"
    )]
    Jump { jump: u64 },
    #[error("{path} was changed by somebody else meanwhile; look at it with `era show`, and repeat")]
    Changed { path: String },
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: MultiError },
    #[error(
        "ZooKeeper's reply was lost, and whether the change was made cannot be read; look with `era show`, and \
         repeat"
    )]
    Unsettled(#[source] ReadInstallationMetaError),
    #[error(transparent)]
    Floor(#[from] FindEpochFloorError),
}

/// The parameters of an operator's era bump.
#[derive(Debug, Default)]
pub struct BumpEraRequest<'a> {
    /// An epoch that was seen anywhere: the new base has to lie above it.
    pub at_least: u64,
    /// The name of an installation that was wiped, and is to be continued here.
    pub name: Option<&'a str>,
    /// Proceed although it is probably a mistake, or the guards would refuse the new tokens.
    pub force: bool,
}

/// The era that is to be started.
#[derive(Debug)]
pub struct NewEra {
    pub meta: InstallationMeta,
    /// The highest epoch that was known; the base lies above it.
    pub above: u64,
}

/// Computes the era after `era`, without starting it. `seen`: the record of epochs on this machine.
///
/// # Errors
/// Returns an error if the era cannot be computed, or should not be started. Nothing was changed; one node was created
/// and removed.
pub async fn next_era(
    link: &impl ZkClient,
    paths: &ZkPaths,
    era: &VersionedInstallationMeta,
    seen: Option<&HighestEpochRecord>,
    request: &BumpEraRequest<'_>,
    randomness: &dyn Randomness,
) -> Result<NewEra, BumpEraError> {
    let floor = era::find_epoch_floor(link, paths, era, randomness).await.map_err(|error| match error {
        FindEpochFloorError::Make { source: MultiError { step: Some(0), .. }, .. } => {
            BumpEraError::Changed { path: paths.meta_path() }
        }
        error => BumpEraError::Floor(error),
    })?;
    compute_next(&era.meta, floor, seen, request)
}

/// The era after the one in `meta`. `floor`: an epoch that no token so far exceeds.
fn compute_next(
    meta: &InstallationMeta,
    floor: u64,
    seen: Option<&HighestEpochRecord>,
    request: &BumpEraRequest<'_>,
) -> Result<NewEra, BumpEraError> {
    let InstallationMeta { uuid, era: number, base, suspect, .. } = meta;
    let (marked, marked_era) = suspect.as_ref().map_or((0, 0), |mark| (mark.highest, mark.era));
    let known = floor.max(marked).max(seen.map_or(0, |record| record.highest));
    let above = known.max(request.at_least);
    // The floor contains the number of transactions so far, and that number is added to the base once more by each
    // token of the new era.
    let jump = BASE_GAP.saturating_add(floor.saturating_sub(*base));
    if !request.force && above - known > LARGEST_JUMP {
        return Err(BumpEraError::Far { at_least: above, known });
    }
    if !request.force && jump > LARGEST_JUMP {
        return Err(BumpEraError::Jump { jump });
    }
    let last = (*number).max(marked_era).max(seen.map_or(0, |record| record.era));
    let meta = InstallationMeta {
        format: UNMARKED,
        uuid: request.name.unwrap_or(uuid).to_owned(),
        era: last.saturating_add(1),
        base: era_base_above(above)?,
        suspect: None,
    };
    Ok(NewEra { meta, above })
}

/// The base of an era whose tokens lie above the epoch `highest`.
///
/// # Errors
/// Returns an error if there is no valid base above it.
pub fn era_base_above(highest: u64) -> Result<u64, BumpEraError> {
    let base = highest.checked_add(BASE_GAP).filter(|base| *base <= HIGHEST_BASE);
    base.ok_or(BumpEraError::TooHigh(highest))
}

/// Starts the era after `era`, in one transaction which checks that no gateway is registered. Gateways that wait for
/// the new era adopt it by themselves.
///
/// # Errors
/// An error means that no new era was started, unless it states that this is unknown.
pub async fn bump(
    link: &impl ZkClient,
    paths: &ZkPaths,
    era: &VersionedInstallationMeta,
    next: InstallationMeta,
) -> Result<InstallationMeta, BumpEraError> {
    let meta = paths.meta_path();
    let members = paths.members_path();
    link.save_acl_for_replacement(&members).await.map_err(|source| BumpEraError::Write {
        path: members.clone(),
        source: MultiError { step: None, fault: source },
    })?;
    let data = serde_json::to_vec(&next).expect("plain fields serialise");
    let steps = [
        MultiOp::Check { path: &meta, version: era.version },
        // The server refuses to delete the folder while a member node is below it, so no gateway can be registered
        // before the new base is set.
        MultiOp::Delete { path: &members, version: None },
        MultiOp::Create { path: &members, data: b"", kind: NodeCreateMode::Persistent },
        MultiOp::Set { path: &meta, data: &data },
    ];
    match link.commit(&steps).await {
        Ok(_) => Ok(next),
        Err(MultiError { step: Some(0), fault: ZkError::BadVersion | ZkError::NoNode }) => {
            Err(BumpEraError::Changed { path: meta })
        }
        Err(MultiError { fault: ZkError::NotEmpty, .. }) => Err(registered_error(link, members).await),
        // If the answer was lost or the session has ended, the transaction may have been done, so `meta` is read.
        Err(MultiError { fault: ZkError::Ambiguous(_) | ZkError::SessionEnded, .. }) => {
            confirm_bump(link, paths, next).await
        }
        Err(source) => Err(BumpEraError::Write { path: meta, source }),
    }
}

/// Determines whether the transaction was done, after a lost answer. The connection is a new one by now, so the
/// transaction was done before or never will be.
async fn confirm_bump(
    link: &impl ZkClient,
    paths: &ZkPaths,
    next: InstallationMeta,
) -> Result<InstallationMeta, BumpEraError> {
    let path = paths.meta_path();
    let synced = link.sync(&path).await;
    synced.map_err(|source| {
        BumpEraError::Unsettled(ReadInstallationMetaError::Fault { path: path.clone(), source })
    })?;
    let now = era::read_meta(link, paths).await.map_err(BumpEraError::Unsettled)?;
    if now.meta == next { Ok(next) } else { Err(BumpEraError::Changed { path }) }
}

async fn registered_error(link: &impl ZkClient, folder: String) -> BumpEraError {
    // The names are for the message only; the transaction has made the decision.
    let names = link.children(&folder).await.unwrap_or_default();
    BumpEraError::Registered { folder, names: names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::installation::ZooKeeperRollbackEvidence;

    const NOTHING: BumpEraRequest<'_> = BumpEraRequest { at_least: 0, name: None, force: false };

    fn meta(era: u64, base: u64, suspect: Option<ZooKeeperRollbackEvidence>) -> InstallationMeta {
        InstallationMeta { format: 1, uuid: "ours".into(), era, base, suspect }
    }

    /// The next era and its base exceed those of `meta`, of the local record, of rollback evidence and of the
    /// request.
    #[test]
    fn next_era_exceeds_all_known_numbers() {
        let seen = HighestEpochRecord { installation: "ours".into(), era: 7, highest: 900 };
        let mark = ZooKeeperRollbackEvidence { highest: 800, era: 9, by: "gw-1".into() };
        let told = |suspect, seen, asked| {
            let next = compute_next(&meta(3, 10, suspect), 500, seen, asked).expect("an era");
            (next.meta.era, next.meta.base - BASE_GAP, next.meta.format, next.meta.suspect)
        };
        assert_eq!(told(None, None, &NOTHING), (4, 500, 1, None));
        assert_eq!(told(None, Some(&seen), &NOTHING), (8, 900, 1, None));
        assert_eq!(told(Some(mark.clone()), None, &NOTHING), (10, 800, 1, None));
        let asked = BumpEraRequest { at_least: 1000, ..NOTHING };
        assert_eq!(told(Some(mark), Some(&seen), &asked), (10, 1000, 1, None));
    }

    /// An epoch far above all known ones is refused without `force`; one beyond the range of tokens is always
    /// refused.
    #[test]
    fn far_jump_requires_force() {
        let asked = |at_least, force| BumpEraRequest { at_least, force, ..NOTHING };
        let told = |asked| compute_next(&meta(0, 0, None), 500, None, &asked).map(|next| next.above);
        assert!(told(asked(500 + LARGEST_JUMP, false)).is_ok());
        assert!(matches!(told(asked(501 + LARGEST_JUMP, false)), Err(BumpEraError::Far { known: 500, .. })));
        assert!(told(asked(501 + LARGEST_JUMP, true)).is_ok());
        assert!(matches!(told(asked(u64::MAX, true)), Err(BumpEraError::TooHigh(_))));
    }

    /// A new base that already contains many transactions is refused without `force`, because each token of the era
    /// adds their number once more.
    #[test]
    fn jump_beyond_guard_limit_requires_force() {
        let base = 5 << 50;
        let told = |czxid, force| {
            let asked = BumpEraRequest { force, ..NOTHING };
            compute_next(&meta(2, base, None), base + czxid, None, &asked)
        };
        let furthest = LARGEST_JUMP - BASE_GAP;
        let next = told(furthest, false).expect("within what they believe");
        assert!(next.meta.base + furthest <= base + furthest + LARGEST_JUMP);
        assert!(matches!(told(furthest + 1, false), Err(BumpEraError::Jump { .. })));
        assert!(told(furthest + 1, true).is_ok());
    }
}
