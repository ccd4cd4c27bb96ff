//! `fencegate era`: shows and changes the identity of an installation, directly in ZooKeeper.

use std::path::Path;

use clap::Subcommand;
use fencegate_policies::{plan, token::LARGEST_JUMP};
use fencegate_process::{
    command_hint::{self, CommandHintTarget},
    randomness::{Guid, SystemRandomness},
};
use fencegate_zookeeper::{
    installation::InstallationMeta,
    session::{
        client::ZkError,
        era::{self, FindEpochFloorError, InitInstallationOutcome, InitialEra, ReadInstallationMetaError},
        era_bump::{self, BumpEraError, BumpEraRequest},
    },
    state::{self, HighestEpochRecord, HighestEpochTracker, StateDirError},
};
use serde::Serialize;
use tracing::{info, warn};

use super::{
    config::ConfigArgs,
    ensemble::{self, ConnectZooKeeperError},
    log::OutputFormat,
};

#[derive(Debug, Subcommand)]
pub(super) enum EraCommand {
    /// Make the nodes of the installation, once. Safe to repeat.
    Init {
        #[command(flatten)]
        config: ConfigArgs,
        /// Replace an installation that was wiped: every new token is larger than this epoch (`Fencing-Number`).
        #[arg(long, value_name = "E")]
        at_least: Option<u64>,
        /// Under the name of the installation that was wiped: its guards keep their stores.
        #[arg(long, value_name = "UUID", requires = "at_least")]
        installation: Option<String>,
    },
    /// Print the installation, its era, and the values with which a new guard is started.
    Show {
        #[command(flatten)]
        config: ConfigArgs,
        /// The form of the output; `json` for programs.
        #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
        format: OutputFormat,
    },
    /// Begin the next era: every token from then on is larger than all before. No gateway may be registered.
    Bump {
        #[command(flatten)]
        config: ConfigArgs,
        /// An epoch (`Fencing-Number`) that was seen, by a guard, a service, or the log line FG0503 of a gateway.
        #[arg(long, value_name = "E")]
        at_least: Option<u64>,
        /// Keep the name of this installation, which was wiped, so that its guards keep their stores.
        #[arg(long, value_name = "UUID")]
        installation: Option<String>,
        /// Do it even if the epoch is far above all known ones, or if guards without tickets will need new stores.
        #[arg(long)]
        force: bool,
        /// The form of the output; `json` for programs.
        #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
        format: OutputFormat,
    },
}

/// The reason for which the verb failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum EraCommandError {
    #[error(transparent)]
    Away(#[from] ConnectZooKeeperError),
    #[error("cannot create the nodes below {root}")]
    Make { root: String, source: ZkError },
    #[error(transparent)]
    Read(#[from] ReadInstallationMetaError),
    #[error(transparent)]
    Floor(#[from] FindEpochFloorError),
    #[error(
        "{0}\nTo go on without it: `--at-least E`, not below any token that guards and services have seen"
    )]
    State(StateDirError),
    #[error(
        "{path} exists already, and nothing was changed; for larger tokens: `{}`",
        command_hint::command_line(CommandHintTarget::Gateway, "era bump")
    )]
    Found { path: String },
    #[error(
        "`{0}` is not the name of an installation: 32 hex digits, as `{show}` or a guard prints it",
        show = command_hint::command_line(CommandHintTarget::Gateway, "era show")
    )]
    NotAName(String),
    #[error("{0}")]
    NotBumped(#[from] BumpEraError),
}

/// The output of `era show`.
#[derive(Debug, Serialize)]
pub(super) struct EraReport {
    pub(super) ensemble: String,
    era: u64,
    base: u64,
    /// The highest known epoch: no known token is above it.
    pub(super) floor: u64,
    /// True if an epoch is known that is larger than all that ZooKeeper has issued: ZooKeeper has lost writes.
    #[serde(skip)]
    pub(super) went_back: bool,
    /// The epoch that a gateway has seen although ZooKeeper, in its present state, has not issued it. While it is
    /// recorded, no gateway grants locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) suspect: Option<u64>,
    /// The name of the gateway that has seen the epoch `suspect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspected_by: Option<String>,
    /// The record in `state_dir` on this machine for this installation, else for the one with the largest epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<StateDirEpochReport>,
    /// The reason for which `state_dir` cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    state_unreadable: Option<String>,
}

/// A record in `state_dir`.
#[derive(Debug, Serialize)]
struct StateDirEpochReport {
    installation: String,
    era: u64,
    highest: u64,
}

/// The output of `era bump`.
#[derive(Debug, Serialize)]
struct EraBumpReport {
    ensemble: String,
    era: u64,
    base: u64,
    /// The highest known epoch. The new base lies above it.
    above: u64,
}

impl EraCommand {
    pub(super) fn config(&self) -> &ConfigArgs {
        let (Self::Init { config, .. } | Self::Show { config, .. } | Self::Bump { config, .. }) = self;
        config
    }
}

/// Runs the verb and returns the text to print.
pub(super) fn run(verb: &EraCommand, plan: &plan::GatewayPlan) -> Result<String, EraCommandError> {
    let policy = &plan.zookeeper;
    match verb {
        EraCommand::Init { at_least, installation, .. } => init(policy, *at_least, installation.as_deref()),
        EraCommand::Show { format, .. } => {
            let shown = show(plan)?;
            Ok(render(*format, &shown, EraReport::to_text))
        }
        EraCommand::Bump { at_least, installation, force, format, .. } => {
            let state = match state_records(plan) {
                Ok(records) => records,
                // With `--at-least`, the operator names the highest epoch, so the bump does not need a readable
                // `state_dir`.
                Err(why) if at_least.is_some() => {
                    warn!(%why, "`state_dir` is left out of account");
                    Vec::new()
                }
                Err(why) => return Err(EraCommandError::State(why)),
            };
            let request = BumpEraRequest {
                at_least: at_least.unwrap_or_default(),
                name: parse_installation(installation.as_deref())?,
                force: *force,
            };
            let bumped = bump(policy, state, &request)?;
            Ok(render(*format, &bumped, EraBumpReport::to_text))
        }
    }
}

/// The records in `state_dir`, if the policy has one.
fn state_records(plan: &plan::GatewayPlan) -> Result<Vec<HighestEpochRecord>, StateDirError> {
    plan.state_dir.as_deref().map_or(Ok(Vec::new()), read_state_dir)
}

/// Reads the records of `state_dir`. No records if the folder is missing: the machine of an operator may have the
/// policy without the files that gateways write.
fn read_state_dir(folder: &Path) -> Result<Vec<HighestEpochRecord>, StateDirError> {
    if folder.try_exists().is_ok_and(|there| !there) {
        warn!(folder = %folder.display(), "there is no state_dir on this machine: nothing is known from it");
        return Ok(Vec::new());
    }
    state::read_records(folder)
}

fn parse_installation(installation: Option<&str>) -> Result<Option<&str>, EraCommandError> {
    match installation {
        Some(name) if Guid::parse(name).is_none() => Err(EraCommandError::NotAName(name.to_owned())),
        name => Ok(name),
    }
}

fn render<T: Serialize>(format: OutputFormat, report: &T, text: impl FnOnce(&T) -> String) -> String {
    match format {
        OutputFormat::Text => text(report),
        OutputFormat::Json => serde_json::to_string_pretty(report).expect("plain fields serialise"),
    }
}

/// Creates the nodes that are missing, and reports the installation.
fn init(
    policy: &plan::ZooKeeperSettings,
    at_least: Option<u64>,
    installation: Option<&str>,
) -> Result<String, EraCommandError> {
    let beginning = match at_least {
        Some(highest) => InitialEra {
            uuid: parse_installation(installation)?.map(str::to_owned),
            era: 1,
            base: era_bump::era_base_above(highest)?,
        },
        None => InitialEra::default(),
    };
    ensemble::with_session(policy, async |link, paths| {
        let init = era::init_installation(link, paths, beginning, &SystemRandomness)
            .await
            .map_err(|source| EraCommandError::Make { root: policy.root.clone(), source })?;
        if init == InitInstallationOutcome::Found && at_least.is_some() {
            return Err(EraCommandError::Found { path: paths.meta_path() });
        }
        let era = era::read_meta(link, paths).await?;
        let how = if init == InitInstallationOutcome::Made { "made" } else { "already there" };
        Ok(format!("{}: {how}, installation {}, era {}", paths.meta_path(), era.meta.uuid, era.meta.era))
    })
}

/// Reads the identity of the installation and the highest known epoch.
pub(super) fn show(plan: &plan::GatewayPlan) -> Result<EraReport, EraCommandError> {
    let state = state_records(plan);
    ensemble::with_session(&plan.zookeeper, async |link, paths| {
        let era = era::read_meta(link, paths).await?;
        let floor = era::find_epoch_floor(link, paths, &era, &SystemRandomness).await?;
        let InstallationMeta { uuid: ensemble, era, base, suspect, .. } = era.meta;
        let (state, state_unreadable) = match state {
            Ok(records) => {
                (HighestEpochTracker::from_records(records).own_or_highest_record(&ensemble), None)
            }
            Err(error) => (None, Some(error.to_string())),
        };
        let ours = state.as_ref().filter(|record| record.installation == ensemble);
        let marked = suspect.as_ref().map_or(0, |mark| mark.highest);
        Ok(EraReport {
            era,
            base,
            went_back: marked.max(ours.map_or(0, |record| record.highest)) > floor,
            floor: floor.max(marked).max(ours.map_or(0, |record| record.highest)),
            suspect: suspect.as_ref().map(|mark| mark.highest),
            suspected_by: suspect.map(|mark| mark.by),
            state: state.map(StateDirEpochReport::from),
            state_unreadable,
            ensemble,
        })
    })
}

/// The most attempts of a bump. An attempt fails if a gateway has changed `meta` since it was read.
const ROUNDS: usize = 4;

fn bump(
    policy: &plan::ZooKeeperSettings,
    state: Vec<HighestEpochRecord>,
    request: &BumpEraRequest<'_>,
) -> Result<EraBumpReport, EraCommandError> {
    let state = HighestEpochTracker::from_records(state);
    ensemble::with_session(policy, async |link, paths| {
        let mut round = 0;
        loop {
            round += 1;
            let era = era::read_meta(link, paths).await?;
            let seen = state.own_or_highest_record(request.name.unwrap_or(&era.meta.uuid));
            let next = era_bump::next_era(link, paths, &era, seen.as_ref(), request, &SystemRandomness).await;
            let above = next.as_ref().map_or(0, |next| next.above);
            let bumped = match next {
                Ok(next) => era_bump::bump(link, paths, &era, next.meta).await,
                Err(error) => Err(error),
            };
            match bumped {
                Err(BumpEraError::Changed { .. }) if round < ROUNDS => {}
                bumped => {
                    let InstallationMeta { uuid: ensemble, era, base, .. } = bumped?;
                    // The audit log records the change for readers who do not see the terminal.
                    info!(target: "audit", installation = ensemble, era, base, above, "era bumped");
                    return Ok(EraBumpReport { ensemble, era, base, above });
                }
            }
        }
    })
}

impl From<HighestEpochRecord> for StateDirEpochReport {
    fn from(HighestEpochRecord { installation, era, highest }: HighestEpochRecord) -> Self {
        Self { installation, era, highest }
    }
}

impl EraReport {
    fn to_text(&self) -> String {
        let Self { ensemble, era, base, floor, .. } = self;
        let mut text = format!(
            "installation  {ensemble}\n\
             era           {era}\n\
             base          {base}\n\
             floor         {floor}   (no token that is known is above it)\n"
        );
        if let Some(StateDirEpochReport { installation, era, highest }) = &self.state {
            text.push_str(&format!("state_dir     {highest}, in era {era} of {installation}\n"));
        }
        if let Some(why) = &self.state_unreadable {
            text.push_str(&format!("state_dir     unreadable: {why}\n"));
        }
        if let (Some(suspect), Some(by)) = (self.suspect, &self.suspected_by) {
            text.push_str(&format!(
                "suspect       {suspect}   (seen by {by}: ZooKeeper went back, and no gateway grants)\n"
            ));
        }
        if self.went_back || self.suspect.is_some() {
            return text
                + &format!(
                    "\nTo make larger tokens, once no gateway is registered:\n  {}",
                    command_hint::command_line(
                        CommandHintTarget::Gateway,
                        &format!("era bump --at-least {floor}")
                    )
                );
        }
        text + &format!(
            "\nTo make the store of a new guard:\n  \
             fencegate guard -c guard.yaml --init --floor {floor} --ensemble {ensemble}"
        )
    }
}

impl EraBumpReport {
    fn to_text(&self) -> String {
        let Self { ensemble, era, base, above } = self;
        format!(
            "installation  {ensemble}\n\
             era           {era}\n\
             base          {base}   (every token from now on is above it; {above} was the highest known)\n\
             \n\
             Gateways that wait for it take it up by themselves; start the others.\n\
             Operations that ZooKeeper remembers for `once` are as old as its backup, if it was restored: ask the service\n\
             what was done since, before clients repeat it.\n\
             Guards of this installation go on as they are. Without tickets a guard takes a token for forged that is more\n\
             than {LARGEST_JUMP} above all it has seen (`token-future`): then it needs a new store, made with\n  \
             fencegate guard -c guard.yaml --init --floor {base} --ensemble {ensemble}"
        )
    }
}
