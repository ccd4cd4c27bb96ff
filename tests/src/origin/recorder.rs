//! What all connections of one recording upstream have in common: its log, its script, and the marks that it compares with.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard},
};

use fencegate_policies::token::Marks;
use tokio::sync::watch;

use super::{Access, Act, Log, Record, Reply, accounts::Accounts};

pub(super) struct Shared {
    pub(super) log: watch::Sender<Log>,
    script: Mutex<Script>,
    /// Some: a token that is not newer than its key's mark is refused.
    marks: Option<Mutex<HashMap<String, Marks>>>,
    /// Some: what fenced requests change.
    pub(super) accounts: Option<Accounts>,
}

pub(super) struct Script {
    /// Consumed one by one, per path.
    pub(super) by_path: HashMap<String, VecDeque<Act>>,
    pub(super) otherwise: Act,
}

impl Shared {
    /// `marks`: with them it compares.
    pub(super) fn new(marks: Option<Mutex<HashMap<String, Marks>>>, accounts: Option<Accounts>) -> Self {
        let script = Script { by_path: HashMap::new(), otherwise: Act::now(Reply::ok()) };
        Self { log: watch::Sender::default(), script: Mutex::new(script), marks, accounts }
    }

    pub(super) fn open(&self, record: Record) -> usize {
        let mut number = 0;
        self.log.send_modify(|log| {
            number = log.records.len();
            log.records.push(record);
        });
        number
    }

    /// Compares and raises the mark of the record's key, where this origin compares.
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
            Access::Exclusive => marks.write(token).is_ok(),
            Access::Shared => marks.read(token).is_ok(),
        };
        self.log.send_modify(|log| log.records[number].stale = !newer);
        newer
    }

    /// The path's next act, if it concerns the reading of the body.
    pub(super) fn early_act(&self, path: &str) -> Option<Act> {
        let mut script = self.script();
        script.by_path.get_mut(path)?.pop_front_if(|act| {
            matches!(
                act,
                Act::ReadLater(_)
                    | Act::ReadSlowly(_)
                    | Act::AnswerUnread(..)
                    | Act::BreakUnread(_)
                    | Act::BeginUnread(..)
            )
        })
    }

    pub(super) fn next_act(&self, path: &str) -> Act {
        let mut script = self.script();
        let scripted = script.by_path.get_mut(path).and_then(VecDeque::pop_front);
        scripted.unwrap_or_else(|| script.otherwise.clone())
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no thread panics here")
    }
}
