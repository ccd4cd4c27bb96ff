//! How to play and tell the story.

use clap::{Args, ValueEnum};
use serde::Serialize;

/// How to play.
#[derive(Debug, Clone, Copy, Args)]
pub struct DemoOptions {
    /// Play the story once and exit; else everything keeps running until Ctrl-C.
    #[arg(long)]
    pub once: bool,
    /// Who compares the tokens.
    #[arg(long, value_enum, default_value_t = DemoFenceLevel::Guard)]
    pub level: DemoFenceLevel,
    /// Play the story with the lock only: the same as `--level none`.
    #[arg(long, conflicts_with = "level")]
    pub without_fence: bool,
    /// Play the story at each level, one after the other, and end with one table.
    #[arg(long, conflicts_with_all = ["level", "without_fence"])]
    pub compare: bool,
    /// The form of the summary. With `json` it is the last line of stdout, and the story goes to stderr.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = DemoReportFormat::Text)]
    pub format: DemoReportFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DemoFenceLevel {
    /// Nobody. No lock is taken either.
    Unfenced,
    /// Nobody. The lock is the only protection.
    None,
    /// A guard in front of a payment service that does not know tokens.
    Guard,
    /// The payment service, in its own transaction.
    Upstream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DemoReportFormat {
    Text,
    Json,
}

impl DemoFenceLevel {
    pub(super) const ALL: [Self; 4] = [Self::Unfenced, Self::None, Self::Guard, Self::Upstream];

    /// The word for the level on the command line.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unfenced => "unfenced",
            Self::None => "none",
            Self::Guard => "guard",
            Self::Upstream => "upstream",
        }
    }

    /// True if tokens are compared.
    pub(super) fn compares_tokens(self) -> bool {
        matches!(self, Self::Guard | Self::Upstream)
    }
}

impl DemoOptions {
    pub(super) fn level(self) -> DemoFenceLevel {
        if self.without_fence { DemoFenceLevel::None } else { self.level }
    }
}
