//! How the story is to be played and told.

use clap::{Args, ValueEnum};
use serde::Serialize;

/// How to play.
#[derive(Debug, Clone, Copy, Args)]
pub struct DemoOptions {
    /// Play the story once and exit; else everything keeps running until Ctrl-C.
    #[arg(long)]
    pub once: bool,
    /// Who compares the tokens.
    #[arg(long, value_enum, default_value_t = Level::Guard)]
    pub level: Level,
    /// The same story with the lock only: the same as `--level none`.
    #[arg(long, conflicts_with = "level")]
    pub without_fence: bool,
    /// The same story at each level, one after the other; it ends in one table.
    #[arg(long, conflicts_with_all = ["level", "without_fence"])]
    pub compare: bool,
    /// How the summary is written; with `json` it is the last line of stdout, and the story goes to stderr.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub format: ReportFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Nobody, and no lock is taken.
    Unfenced,
    /// Nobody: the lock is all there is.
    None,
    /// A guard beside a payment service that knows nothing of tokens.
    Guard,
    /// The payment service, in its own transaction.
    Upstream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    Text,
    Json,
}

impl Level {
    pub(super) const ALL: [Self; 4] = [Self::Unfenced, Self::None, Self::Guard, Self::Upstream];

    /// As it is written on the command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Unfenced => "unfenced",
            Self::None => "none",
            Self::Guard => "guard",
            Self::Upstream => "upstream",
        }
    }

    /// Somebody compares tokens.
    pub(super) fn compares(self) -> bool {
        matches!(self, Self::Guard | Self::Upstream)
    }
}

impl DemoOptions {
    pub(super) fn level(self) -> Level {
        if self.without_fence { Level::None } else { self.level }
    }
}
