//! `fencegate era`: the identity of an installation, straight from ZooKeeper.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use fencegate_policies::plan;
use serde::Serialize;
use tracing::info;

use super::{
    ensemble::{self, Away},
    log::Format,
};
use crate::{
    guard::register::LARGEST_JUMP,
    randomness::{Guid, SystemRandomness},
    session::{
        bump::{self, NotBumped},
        era::{self, Init, Meta, NoFloor, Unreadable},
        link::Fault,
    },
    state::{self, Record, Unusable},
};

#[derive(Debug, Subcommand)]
pub(super) enum Era {
    /// Make the installation's nodes, once. Safe to repeat.
    Init {
        #[arg(short = 'c', long = "config", value_name = "POLICY")]
        policy: PathBuf,
    },
    /// Print the installation, its era, and what a new guard has to be started with.
    Show {
        #[arg(short = 'c', long = "config", value_name = "POLICY")]
        policy: PathBuf,
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Begin the next era: every token from then on is larger than all before. No gateway may be registered.
    Bump {
        #[arg(short = 'c', long = "config", value_name = "POLICY")]
        policy: PathBuf,
        /// An epoch (`Fencing-Number`) that was seen, by a guard, a service, or the log line FG0503 of a gateway.
        #[arg(long, value_name = "E", default_value_t = 0)]
        at_least: u64,
        /// Go on under the name of this installation, which was wiped: its guards keep their stores.
        #[arg(long, value_name = "UUID")]
        installation: Option<String>,
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}

/// Why nothing could be said or done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Away(#[from] Away),
    #[error("make the nodes below {root}")]
    Make { root: String, source: Fault },
    #[error(transparent)]
    Read(#[from] Unreadable),
    #[error(transparent)]
    Floor(#[from] NoFloor),
    #[error(transparent)]
    State(#[from] Unusable),
    #[error(
        "`{0}` is not the name of an installation: 32 hex digits, as `fencegate era show` or a guard prints it"
    )]
    NotAName(String),
    #[error("{0}")]
    NotBumped(#[from] NotBumped),
}

/// What `era show` tells.
#[derive(Debug, Serialize)]
struct Shown {
    ensemble: String,
    era: u64,
    base: u64,
    /// Not below any token granted so far, unless ZooKeeper went back.
    floor: u64,
    /// No gateway grants: one of them has seen this epoch, which this state of ZooKeeper has not given out.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspect: Option<u64>,
    /// What `state_dir` of this machine says.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<Remembered>,
}

/// What is in a `state_dir`.
#[derive(Debug, Serialize)]
struct Remembered {
    installation: String,
    era: u64,
    highest: u64,
}

/// What `era bump` tells.
#[derive(Debug, Serialize)]
struct Bumped {
    ensemble: String,
    era: u64,
    base: u64,
    /// The highest epoch that was known; the base lies above it.
    above: u64,
}

impl Era {
    pub(super) fn policy(&self) -> &Path {
        match self {
            Self::Init { policy } | Self::Show { policy, .. } | Self::Bump { policy, .. } => policy,
        }
    }
}

/// What is to be printed.
pub(super) fn run(verb: &Era, plan: &plan::Gateway) -> Result<String, Trouble> {
    let policy = &plan.zookeeper;
    let state = || plan.state_dir.as_deref().map(state::read).transpose().map(Option::flatten);
    match verb {
        Era::Init { .. } => init(policy),
        Era::Show { format, .. } => {
            let shown = show(policy, state()?)?;
            Ok(told(*format, &shown, Shown::text))
        }
        Era::Bump { at_least, installation, format, .. } => {
            let bumped = bump(policy, state()?, *at_least, installation.as_deref())?;
            Ok(told(*format, &bumped, Bumped::text))
        }
    }
}

fn told<T: Serialize>(format: Format, said: &T, text: impl FnOnce(&T) -> String) -> String {
    match format {
        Format::Text => text(said),
        Format::Json => serde_json::to_string_pretty(said).expect("plain fields serialise"),
    }
}

/// Makes the installation's nodes where missing, and says what is there then.
fn init(policy: &plan::ZooKeeper) -> Result<String, Trouble> {
    ensemble::ask(policy, async |link, paths| {
        let init = era::init(link, paths, &SystemRandomness)
            .await
            .map_err(|source| Trouble::Make { root: policy.root.clone(), source })?;
        let era = era::read(link, paths).await?;
        let how = if init == Init::Made { "made" } else { "already there" };
        Ok(format!("{}: {how}, installation {}, era {}", paths.meta(), era.meta.uuid, era.meta.era))
    })
}

fn show(policy: &plan::ZooKeeper, state: Option<Record>) -> Result<Shown, Trouble> {
    ensemble::ask(policy, async |link, paths| {
        let era = era::read(link, paths).await?;
        let floor = era::floor(link, paths, &era, &SystemRandomness).await?;
        let Meta { uuid: ensemble, era, base, suspect, .. } = era.meta;
        Ok(Shown { ensemble, era, base, floor, suspect, state: state.map(Remembered::from) })
    })
}

/// How often a bump begins anew because a gateway has marked `meta` meanwhile.
const ROUNDS: usize = 4;

fn bump(
    policy: &plan::ZooKeeper,
    state: Option<Record>,
    at_least: u64,
    installation: Option<&str>,
) -> Result<Bumped, Trouble> {
    if let Some(name) = installation.filter(|name| Guid::parse(name).is_none()) {
        return Err(Trouble::NotAName(name.to_owned()));
    }
    let seen = state.map_or(0, |record| record.highest).max(at_least);
    ensemble::ask(policy, async |link, paths| {
        let mut round = 0;
        loop {
            round += 1;
            let era = era::read(link, paths).await?;
            let above = bump::highest(link, paths, &era, seen, &SystemRandomness).await?;
            match bump::bump(link, paths, &era, above, installation).await {
                Err(NotBumped::Changed { .. }) if round < ROUNDS => {}
                bumped => {
                    let Meta { uuid: ensemble, era, base, .. } = bumped?;
                    // Whoever looks for it later: the terminal is gone by then.
                    info!(target: "audit", installation = ensemble, era, base, above, "era bumped");
                    return Ok(Bumped { ensemble, era, base, above });
                }
            }
        }
    })
}

impl From<Record> for Remembered {
    fn from(Record { installation, era, highest }: Record) -> Self {
        Self { installation, era, highest }
    }
}

impl Shown {
    fn text(&self) -> String {
        let Self { ensemble, era, base, floor, .. } = self;
        let mut text = format!(
            "installation  {ensemble}\n\
             era           {era}\n\
             base          {base}\n\
             floor         {floor}   (no token granted so far is above it)\n"
        );
        if let Some(Remembered { installation, era, highest }) = &self.state {
            text.push_str(&format!("state_dir     {highest}, in era {era} of {installation}\n"));
        }
        if let Some(suspect) = self.suspect {
            return text
                + &format!(
                    "suspect       {suspect}   (seen by a gateway: ZooKeeper went back, and no gateway grants)\n\
                     \n\
                     To make larger tokens, once no gateway is registered:\n  \
                     fencegate era bump -c <policy> --at-least {suspect}"
                );
        }
        text + &format!(
            "\nTo make the store of a new guard:\n  \
             fencegate guard -c guard.yaml --init --floor {floor} --ensemble {ensemble}"
        )
    }
}

impl Bumped {
    fn text(&self) -> String {
        let Self { ensemble, era, base, above } = self;
        format!(
            "installation  {ensemble}\n\
             era           {era}\n\
             base          {base}   (every token from now on is above it; {above} was the highest known)\n\
             \n\
             Gateways that wait for it take it up by themselves; start the others.\n\
             Guards of this installation go on as they are. Without tickets a guard takes a token for forged that is more\n\
             than {LARGEST_JUMP} above all it has seen (`token-future`): then it needs a new store, made with\n  \
             fencegate guard -c guard.yaml --init --floor {base} --ensemble {ensemble}"
        )
    }
}
