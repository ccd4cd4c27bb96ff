//! Creates a store from a backup. The order makes it safe: first no process uses the old store, then ZooKeeper is
//! queried for the highest epoch, then the store is created. The guard starts last.

use std::{path::Path, process::ExitCode};

use fencegate_guard_store::store::{
    RestoreOptions,
    backup::{BackupHeader, verify_backup},
};
use fencegate_policies::plan;
use fencegate_process::randomness::{Guid, SystemRandomness};

use super::{
    args::RestoreArgs,
    error::BackupCommandError,
    render::{self, GuardRestoreOutcome},
};
use crate::{
    backups::{
        atomic_file::OverwritePolicy,
        restore_target::{RestoreTarget, RestoredStore},
    },
    cli::{admin_client::CommandHintTarget, config, era, out, policy},
};

pub(super) fn run(restoring: &RestoreArgs) -> Result<(), ExitCode> {
    let file = config::resolve_file(restoring.config.as_deref(), CommandHintTarget::Guard)?;
    let guard = policy::read_guard_quietly(&file)?;
    let usual = Some(config::default_path(CommandHintTarget::Gateway)).filter(|usual| usual.exists());
    let policy_path = restoring.policy.as_deref().or(usual).filter(|_| restoring.floor.is_none());
    let gateway = policy_path.map(policy::read_gateway_quietly).transpose()?;
    let gateway = policy_path.zip(gateway.as_ref());
    let outcome = restore(restoring, &guard, gateway).map_err(|error| out::report_error(&error))?;
    out::print_text(render::restore_text(&outcome, restoring.format))
}

fn restore(
    restoring: &RestoreArgs,
    guard: &plan::GuardPlan,
    gateway: Option<(&Path, &plan::GatewayPlan)>,
) -> Result<GuardRestoreOutcome, BackupCommandError> {
    let plan::GuardStoreLocation::Redb(path) = &guard.store else {
        return Err(BackupCommandError::Shared(
            "restore the database with its own tools; its guards take a store that went back for what it is",
        ));
    };
    let backup = &restoring.backup;
    let broken = |source| BackupCommandError::Broken { backup: backup.display().to_string(), source };
    let header = verify_backup(backup).map_err(broken)?;
    let existing = if restoring.replace { OverwritePolicy::Replace } else { OverwritePolicy::Keep };
    let place = RestoreTarget::open(Path::new(path), existing)?;
    // The epoch is queried only after the old store was locked: everything that its guard has admitted is then
    // below the epoch that ZooKeeper returns.
    let floor = match (restoring.floor, gateway) {
        (Some(floor), _) => floor,
        (None, Some((policy, gateway))) => read_floor(policy, gateway, &header)?,
        (None, None) => return Err(BackupCommandError::NoFloor),
    };
    let restored = RestoreOptions {
        store: Guid::new(&SystemRandomness).to_string(),
        floor,
        send_within: guard.send_within,
        max_execution: guard.max_execution,
    };
    let RestoredStore { header, aside, closed_for } = place.restore(backup, &restored)?;
    Ok(GuardRestoreOutcome {
        path: path.clone(),
        backup: backup.clone(),
        header,
        restored,
        aside,
        closed_for,
    })
}

/// The highest epoch according to ZooKeeper: no token above it was issued.
fn read_floor(
    policy: &Path,
    gateway: &plan::GatewayPlan,
    header: &BackupHeader,
) -> Result<u64, BackupCommandError> {
    let shown = era::show(gateway)?;
    let theirs = &header.identity.ensemble;
    let ours = &shown.ensemble;
    if theirs != ours {
        return Err(BackupCommandError::OtherInstallation { theirs: theirs.clone(), ours: ours.clone() });
    }
    if shown.went_back || shown.suspect.is_some() {
        return Err(BackupCommandError::WentBack { policy: policy.display().to_string() });
    }
    Ok(shown.floor)
}
