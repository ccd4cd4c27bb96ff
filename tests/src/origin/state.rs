//! The state that all connections of one recording upstream share: its log, its script, and its watermarks.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard},
};

use fencegate_policies::token::ReadWriteWatermarks;
use tokio::sync::watch;

use super::{
    AccessMode, OriginAction, OriginLog, OriginReply, RequestRecord, ScriptedResponse, accounts::Accounts,
};

pub(super) struct OriginState {
    pub(super) log: watch::Sender<OriginLog>,
    script: Mutex<ActionScript>,
    /// The watermarks of the keys. If there are any, the origin refuses a token that is not newer than its key's
    /// watermark.
    marks: Option<Mutex<HashMap<String, ReadWriteWatermarks>>>,
    /// The accounts that fenced requests change, if the origin keeps accounts.
    pub(super) accounts: Option<Accounts>,
}

pub(super) struct ActionScript {
    /// The actions for each path. Each request uses up one.
    pub(super) by_path: HashMap<String, VecDeque<OriginAction>>,
    /// If set, each of the next requests of any path gets one of these answers, and all later requests get a 200.
    pub(super) responses: Option<VecDeque<ScriptedResponse>>,
    pub(super) otherwise: OriginAction,
}

impl OriginState {
    /// If `marks` is given, the origin compares tokens.
    pub(super) fn new(
        marks: Option<Mutex<HashMap<String, ReadWriteWatermarks>>>,
        accounts: Option<Accounts>,
    ) -> Self {
        let script = ActionScript {
            by_path: HashMap::new(),
            responses: None,
            otherwise: OriginAction::now(OriginReply::ok()),
        };
        Self { log: watch::Sender::default(), script: Mutex::new(script), marks, accounts }
    }

    pub(super) fn open(&self, record: RequestRecord) -> usize {
        let mut number = 0;
        self.log.send_modify(|log| {
            number = log.records.len();
            log.records.push(record);
        });
        number
    }

    /// Compares the token with the watermark of its key and raises the watermark, if this origin compares. False if
    /// the token is refused.
    pub(super) fn admit(&self, number: usize) -> bool {
        let Some(marks) = &self.marks else { return true };
        let (key, token, access) = {
            let log = self.log.borrow();
            let record = &log.records[number];
            (record.key().map(str::to_owned), record.token(), record.access())
        };
        let (Some(key), Some(token)) = (key, token) else { return true };
        let mut marks = marks.lock().expect("no thread panics here");
        let marks = marks.entry(key).or_default();
        let newer = match access {
            AccessMode::Exclusive => marks.admit_write(token).is_ok(),
            AccessMode::Shared => marks.admit_read(token).is_ok(),
        };
        self.log.send_modify(|log| log.records[number].stale = !newer);
        newer
    }

    pub(super) fn next_response(&self) -> Option<ScriptedResponse> {
        Some(self.script().responses.as_mut()?.pop_front().unwrap_or_default())
    }

    /// Takes the next action of the path, if that action concerns the reading of the body.
    pub(super) fn early_act(&self, path: &str) -> Option<OriginAction> {
        let mut script = self.script();
        script.by_path.get_mut(path)?.pop_front_if(|act| {
            matches!(
                act,
                OriginAction::ReadLater(_)
                    | OriginAction::ReadSlowly(_)
                    | OriginAction::AnswerUnread(..)
                    | OriginAction::BreakUnread(_)
                    | OriginAction::BeginUnread(..)
            )
        })
    }

    pub(super) fn next_act(&self, path: &str) -> OriginAction {
        let mut script = self.script();
        let scripted = script.by_path.get_mut(path).and_then(VecDeque::pop_front);
        scripted.unwrap_or_else(|| script.otherwise.clone())
    }

    pub(super) fn script(&self) -> MutexGuard<'_, ActionScript> {
        self.script.lock().expect("no thread panics here")
    }
}
