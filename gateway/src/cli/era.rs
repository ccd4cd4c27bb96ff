//! `fencegate era`: the identity of an installation, straight from ZooKeeper.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use fencegate_policies::plan;
use serde::Serialize;

use super::{
    ensemble::{self, Away},
    log::Format,
};
use crate::{
    randomness::SystemRandomness,
    session::{
        era::{self, Init, NoFloor, Unreadable},
        link::Fault,
    },
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
}

/// What `era show` tells.
#[derive(Debug, Serialize)]
struct Shown {
    ensemble: String,
    era: u64,
    base: u64,
    /// Not below any token granted so far.
    floor: u64,
}

impl Era {
    pub(super) fn policy(&self) -> &Path {
        match self {
            Self::Init { policy } | Self::Show { policy, .. } => policy,
        }
    }
}

/// What is to be printed.
pub(super) fn run(verb: &Era, policy: &plan::ZooKeeper) -> Result<String, Trouble> {
    match verb {
        Era::Init { .. } => init(policy),
        Era::Show { format, .. } => {
            let shown = show(policy)?;
            Ok(match format {
                Format::Text => shown.text(),
                Format::Json => serde_json::to_string_pretty(&shown).expect("plain fields serialise"),
            })
        }
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

fn show(policy: &plan::ZooKeeper) -> Result<Shown, Trouble> {
    ensemble::ask(policy, async |link, paths| {
        let era = era::read(link, paths).await?;
        let floor = era::floor(link, paths, &era, &SystemRandomness).await?;
        Ok(Shown { ensemble: era.meta.uuid, era: era.meta.era, base: era.meta.base, floor })
    })
}

impl Shown {
    fn text(&self) -> String {
        let Self { ensemble, era, base, floor } = self;
        format!(
            "installation  {ensemble}\n\
             era           {era}\n\
             base          {base}\n\
             floor         {floor}   (no token granted so far is above it)\n\
             \n\
             To make the store of a new guard:\n  \
             fencegate guard -c guard.yaml --init --floor {floor} --ensemble {ensemble}"
        )
    }
}
