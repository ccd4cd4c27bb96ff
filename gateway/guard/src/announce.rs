//! What a guard says of itself: gateways ask before the first request on every connection.

use std::time::Duration;

use fencegate_policies::plan::Enforce;
use serde::{Deserialize, Serialize};

use crate::{arbitration::Reach, guard::Guard, refused::Refused};

/// Where a guard says it: a path that no service has.
pub const ANNOUNCEMENT: &str = "/.fencegate/v1/guard";

/// Of what is announced.
const FORMAT: u32 = 1;

/// The answer to [`ANNOUNCEMENT`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Announcement {
    pub format: u32,
    /// Guards of one upstream have one store.
    pub store: String,
    /// Where several guards may have the store: which database it is in. Older guards are alone with theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    /// Of the process: two processes with one store that only one may have are a copy.
    pub instance: String,
    /// The installation whose tokens are compared.
    pub ensemble: String,
    pub floor: u64,
    /// The largest epoch ever announced: a store that comes back with less was restored from an older state.
    pub highest: u64,
    /// Milliseconds.
    pub settle: u64,
    /// Milliseconds.
    pub max_execution: u64,
    /// Nothing is refused: nothing is promised.
    pub observes: bool,
    /// Milliseconds that the process has had its store. Older guards do not say it.
    #[serde(default)]
    pub up: Option<u64>,
}

impl Announcement {
    /// How long the answer to a request may take that the guard lets in last of all.
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.settle.saturating_add(self.max_execution))
    }
}

impl Guard {
    /// # Errors
    /// The store cannot be asked.
    pub async fn announcement(&self) -> Result<Announcement, Refused> {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let Reach { floor, highest, database } = self.arbiter.reach().await?;
        Ok(Announcement {
            format: FORMAT,
            store: self.identity.store.clone(),
            shared: database,
            instance: self.instance.clone(),
            ensemble: self.identity.ensemble.clone(),
            floor,
            highest,
            settle: millis(self.rules.settle),
            max_execution: millis(self.rules.max_execution),
            observes: self.rules.enforce == Enforce::Observe,
            up: Some(millis(self.now().since(self.since))),
        })
    }
}
