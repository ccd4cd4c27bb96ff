//! The questions and answers of `sql/act.sql`.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use fencegate_policies::{key::ResourceKey, plan::Mode, token::Token};
use fencegate_process::clock::Boot;
use serde::{Deserialize, Serialize};

use super::{
    connect::millis,
    in_hand::InHand,
    look::{DispatchName, InFlight},
    right::RightId,
};
use crate::{
    operation::{Entry, Kept, State, Writing},
    register::{Claim, Ended},
};

/// One question to the database.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Look {
        how: How,
        claim: Claim,
        name: DispatchName,
        in_hand: InHand,
        operation: Option<(RightId, Box<Entry>)>,
    },
    End {
        dispatch: InFlight,
        ended: Ended,
        /// A doubt takes as long at least, from when the database is told.
        at_least: Duration,
        operation: Option<(RightId, Writing)>,
    },
    Reserve(RightId),
    Release(RightId),
    Write(RightId, Writing),
    Resolve {
        keys: Arc<[ResourceKey]>,
        token: Token,
    },
    /// Asks nothing. A connection has to be open for it.
    Nothing,
}

/// The kind of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Claim,
    Settle,
    Pass,
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub(super) enum Answer {
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
        token: Token,
    },
    Duplicate {
        token: Token,
    },
    NotHeld,
    Dead,
    Done,
    None,
}

/// The answers to a batch.
#[derive(Debug, Deserialize)]
pub(super) struct Answers {
    /// The number of this statement in the instance. 0: it was refused, because it came from an earlier connection.
    pub(super) acts: i64,
    pub(super) answers: Vec<Answer>,
}

/// A question in the form that the function reads.
#[derive(Debug, Default, Serialize)]
pub(super) struct Row<'i> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    keys: Vec<&'i str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    shared: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<Token>,
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

impl How {
    fn word(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Settle => "settle",
            Self::Pass => "pass",
        }
    }
}

impl Item {
    pub(super) fn keys(&self) -> &[ResourceKey] {
        match self {
            Self::Look { claim, .. } => &claim.keys,
            Self::End { dispatch, .. } => &dispatch.keys,
            Self::Resolve { keys, .. } => keys,
            Self::Reserve(_) | Self::Release(_) | Self::Write(..) | Self::Nothing => &[],
        }
    }

    /// The question at this moment: instants become remaining times, because the database does not know our clock.
    pub(super) fn written(&self, again: bool, longest: i64, now: Boot) -> Row<'_> {
        let keys = self.keys().iter().map(ResourceKey::as_str).collect();
        let blank = Row { keys, again, longest, ..Row::default() };
        match self {
            Self::Look { how, claim, name, operation, .. } => {
                let writing = operation.as_ref().map(|(_, entry)| Writing::Entry(entry.clone()));
                let written = Row {
                    kind: how.word(),
                    id: Some(name.to_string()),
                    parent: claim.caller(),
                    era: claim.era.map(|era| era.min(i64::MAX as u64)),
                    ..blank.of(claim.token, claim.mode)
                };
                written.about(operation.as_ref().map(|(right, _)| right).zip(writing.as_ref()))
            }
            Self::End { dispatch, ended, at_least, operation } => {
                let remains = match ended {
                    Ended::Known => None,
                    Ended::InDoubt { until } => Some(millis(until.since(now).max(*at_least))),
                };
                let id = Some(dispatch.name.to_string());
                let written = Row { kind: "end", id, remains, ..blank.of(dispatch.token, dispatch.mode) };
                written.about(operation.as_ref().map(|(right, writing)| (right, writing)))
            }
            Self::Reserve(right) => Row { kind: "reserve", ..blank }.about(Some((right, &Writing::Nothing))),
            Self::Release(right) => Row { kind: "release", ..blank }.about(Some((right, &Writing::Nothing))),
            Self::Write(right, writing) => Row { kind: "write", ..blank }.about(Some((right, writing))),
            Self::Resolve { token, .. } => Row { kind: "resolve", token: Some(*token), ..blank },
            // Without keys it resolves nothing.
            Self::Nothing => Row { kind: "resolve", ..blank },
        }
    }
}

impl Row<'_> {
    fn of(self, token: Token, mode: Mode) -> Self {
        Self { token: Some(token), epoch: Some(token.number()), shared: mode == Mode::Shared, ..self }
    }

    fn about(mut self, operation: Option<(&RightId, &Writing)>) -> Self {
        let Some((right, writing)) = operation else { return self };
        self.operation = Some(format!("\\x{}", right.id));
        self.holder = Some(right.holder().to_string());
        match writing {
            Writing::Nothing => {}
            Writing::Forget => self.writing = Some("forget"),
            Writing::Entry(entry) => {
                self.writing = Some("entry");
                self.entry = Some(serde_json::to_string(entry).expect("plain fields serialise"));
                self.ends = ends(entry);
                if let State::Done { answer: Some(Kept { body: Some(body), .. }), .. } = &entry.state {
                    let digits: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
                    self.body = Some(format!("\\x{digits}"));
                }
            }
        }
        self
    }
}

/// When it may be forgotten: seconds of the store's time.
pub(super) fn ends(entry: &Entry) -> Option<i64> {
    let end = match entry.state {
        State::Admitted => return None,
        State::Done { at, .. } | State::Resolved { at, .. } => at.saturating_add(entry.keep),
    };
    Some(i64::try_from(end).unwrap_or(i64::MAX))
}

/// All keys of a batch, sorted by their bytes, without duplicates.
pub(super) fn keys_of<'i>(items: impl Iterator<Item = &'i Item>) -> Vec<&'i str> {
    let keys: BTreeSet<&str> = items.flat_map(Item::keys).map(ResourceKey::as_str).collect();
    keys.into_iter().collect()
}
