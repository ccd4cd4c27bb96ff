//! The requests and replies of `sql/act.sql`.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use fencegate_guard_store::{
    admission::{DispatchEnd, PresentedDispatch},
    operation::{JournalEntryState, JournalUpdate, OperationJournalEntry, StoredResponse},
};
use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_process::clock::BootInstant;
use serde::{Deserialize, Serialize};

use super::{
    admit_reply::{DispatchName, InFlightDispatch},
    connect::millis,
    name_registry::OwnedRowHandle,
    operation_lock::OperationLockIdentity,
};

/// One request to the database.
#[derive(Debug, Clone)]
pub(super) enum DbRequest {
    Look {
        how: AdmitKind,
        claim: PresentedDispatch,
        name: DispatchName,
        in_hand: OwnedRowHandle,
        operation: Option<(OperationLockIdentity, Box<OperationJournalEntry>)>,
    },
    End {
        dispatch: InFlightDispatch,
        ended: DispatchEnd,
        /// A doubt lasts at least as long as this, from when the database has recorded it.
        at_least: Duration,
        operation: Option<(OperationLockIdentity, JournalUpdate)>,
    },
    Reserve(OperationLockIdentity),
    Release(OperationLockIdentity),
    Write(OperationLockIdentity, JournalUpdate),
    Resolve {
        keys: Arc<[ResourceKey]>,
        token: FencingToken,
    },
    /// An empty request, which only needs an open connection.
    Nothing,
}

/// The kind of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdmitKind {
    Claim,
    Settle,
    Pass,
}

/// The reply to one request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub(super) enum DbReply {
    Running,
    Wait {
        #[serde(default)]
        key: Option<String>,
        #[serde(default)]
        left: Option<i64>,
    },
    Closed {
        left: i64,
    },
    Future {
        epoch: u64,
    },
    Floor {
        epoch: u64,
    },
    Recovered {
        epoch: u64,
    },
    Stale {
        token: FencingToken,
    },
    Duplicate {
        token: FencingToken,
    },
    NotHeld,
    Dead,
    Done,
    None,
}

/// The replies to a batch.
#[derive(Debug, Deserialize)]
pub(super) struct DbReplyBatch {
    /// The number of this statement in the instance. 0: it was refused, because it came from an earlier connection.
    pub(super) acts: i64,
    pub(super) answers: Vec<DbReply>,
}

/// A request in the form that the SQL function `act` reads.
#[derive(Debug, Default, Serialize)]
pub(super) struct DbRequestRow<'i> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    keys: Vec<&'i str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<FencingToken>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    shared: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<FencingToken>,
    #[serde(skip_serializing_if = "Option::is_none")]
    era: Option<u64>,
    again: bool,
    longest: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    remains: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    writing: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: Option<i64>,
}

impl AdmitKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Settle => "settle",
            Self::Pass => "pass",
        }
    }
}

impl DbRequest {
    pub(super) fn keys(&self) -> &[ResourceKey] {
        match self {
            Self::Look { claim, .. } => &claim.keys,
            Self::End { dispatch, .. } => &dispatch.keys,
            Self::Resolve { keys, .. } => keys,
            Self::Reserve(_) | Self::Release(_) | Self::Write(..) | Self::Nothing => &[],
        }
    }

    /// The request at this moment: instants become remaining times, because the database does not have this machine's
    /// clock.
    pub(super) fn to_row(&self, again: bool, longest: i64, now: BootInstant) -> DbRequestRow<'_> {
        let keys = self.keys().iter().map(ResourceKey::as_str).collect();
        let blank = DbRequestRow { keys, again, longest, ..DbRequestRow::default() };
        match self {
            Self::Look { how, claim, name, operation, .. } => {
                let writing = operation.as_ref().map(|(_, entry)| JournalUpdate::Entry(entry.clone()));
                let written = DbRequestRow {
                    kind: how.as_str(),
                    id: Some(name.to_string()),
                    parent: claim.caller(),
                    era: claim.era.map(|era| era.min(i64::MAX as u64)),
                    ..blank.with_token_columns(claim.token, claim.mode)
                };
                written.with_operation(operation.as_ref().map(|(lock, _)| lock).zip(writing.as_ref()))
            }
            Self::End { dispatch, ended, at_least, operation } => {
                let remains = match ended {
                    DispatchEnd::Known => None,
                    DispatchEnd::InDoubt { until } => Some(millis(until.since(now).max(*at_least))),
                };
                let id = Some(dispatch.name.to_string());
                let written = DbRequestRow {
                    kind: "end",
                    id,
                    remains,
                    ..blank.with_token_columns(dispatch.token, dispatch.mode)
                };
                written.with_operation(operation.as_ref().map(|(lock, writing)| (lock, writing)))
            }
            Self::Reserve(lock) => DbRequestRow { kind: "reserve", ..blank }
                .with_operation(Some((lock, &JournalUpdate::Nothing))),
            Self::Release(lock) => DbRequestRow { kind: "release", ..blank }
                .with_operation(Some((lock, &JournalUpdate::Nothing))),
            Self::Write(lock, writing) => {
                DbRequestRow { kind: "write", ..blank }.with_operation(Some((lock, writing)))
            }
            Self::Resolve { token, .. } => DbRequestRow { kind: "resolve", token: Some(*token), ..blank },
            // A `resolve` without keys changes nothing.
            Self::Nothing => DbRequestRow { kind: "resolve", ..blank },
        }
    }
}

impl DbRequestRow<'_> {
    fn with_token_columns(self, token: FencingToken, mode: LockMode) -> Self {
        Self { token: Some(token), epoch: Some(token.number()), shared: mode == LockMode::Shared, ..self }
    }

    fn with_operation(mut self, operation: Option<(&OperationLockIdentity, &JournalUpdate)>) -> Self {
        let Some((lock, writing)) = operation else { return self };
        self.operation = Some(format!("\\x{}", lock.id));
        self.holder = Some(lock.holder().to_string());
        match writing {
            JournalUpdate::Nothing => {}
            JournalUpdate::Forget => self.writing = Some("forget"),
            JournalUpdate::Entry(entry) => {
                self.writing = Some("entry");
                self.entry = Some(serde_json::to_string(entry).expect("plain fields serialise"));
                self.ends = expires_at(entry);
                if let JournalEntryState::Done {
                    answer: Some(StoredResponse { body: Some(body), .. }), ..
                } = &entry.state
                {
                    let digits: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
                    self.body = Some(format!("\\x{digits}"));
                }
            }
        }
        self
    }
}

/// The time at which the operation may be forgotten, in seconds of the store's time; `None` if its outcome is
/// unknown.
pub(super) fn expires_at(entry: &OperationJournalEntry) -> Option<i64> {
    let end = match entry.state {
        JournalEntryState::Admitted => return None,
        JournalEntryState::Done { at, .. } | JournalEntryState::Resolved { at, .. } => {
            at.saturating_add(entry.keep)
        }
    };
    Some(i64::try_from(end).unwrap_or(i64::MAX))
}

/// All keys of a batch, sorted by their bytes, without duplicates.
pub(super) fn distinct_keys<'i>(items: impl Iterator<Item = &'i DbRequest>) -> Vec<&'i str> {
    let keys: BTreeSet<&str> = items.flat_map(DbRequest::keys).map(ResourceKey::as_str).collect();
    keys.into_iter().collect()
}
