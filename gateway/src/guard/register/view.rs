//! What can be seen of the register, for operators, for the marker of an orderly stop, and for gauges.

use std::collections::BTreeMap;

use fencegate_policies::{key::ResourceKey, plan::Mode, token::Token};

use super::{Claim, DispatchId, Doubt, Mark, Register, Running};
use crate::{guard::doubt::OpenDoubt, session::clock::Boot};

/// What is known of one key.
#[derive(Debug, Clone)]
pub struct Seen {
    pub write: Option<Token>,
    pub read: Option<Token>,
    pub running: Vec<Running>,
    pub doubts: Vec<Doubt>,
}

impl Register {
    /// The marks and doubts of a key.
    pub fn seen(&self, key: &ResourceKey, now: Boot) -> Option<Seen> {
        let record = self.keys.get(key)?;
        let doubts = record.doubts.iter().filter(|doubt| now < doubt.until);
        Some(Seen {
            write: record.write.map(|mark| mark.token),
            read: record.read.map(|mark| mark.token),
            running: record.running.clone(),
            doubts: doubts.cloned().collect(),
        })
    }

    /// The marks whose whole tokens are known.
    pub fn exact_marks(&self) -> impl Iterator<Item = (&ResourceKey, Option<Token>, Option<Token>)> {
        let exact = |mark: Option<Mark>| mark.filter(|mark| mark.exact).map(|mark| mark.token);
        self.keys.iter().map(move |(key, record)| (key, exact(record.write), exact(record.read)))
    }

    /// May something still be at work under this token?
    pub fn may_run(&self, keys: &[ResourceKey], token: Token, now: Boot) -> bool {
        let seen = keys.iter().filter_map(|key| self.keys.get(key));
        seen.into_iter().any(|record| {
            record.running.iter().any(|running| running.token == token)
                || record.doubts.iter().any(|doubt| doubt.token == token && now < doubt.until)
        })
    }

    /// Every execution in doubt, once, with all its keys.
    pub fn open_doubts(&self, now: Boot) -> Vec<OpenDoubt> {
        let mut open: BTreeMap<DispatchId, OpenDoubt> = BTreeMap::new();
        for (key, record) in &self.keys {
            for doubt in record.doubts.iter().filter(|doubt| now < doubt.until) {
                let Doubt { id, token, mode, until } = *doubt;
                let entry = open.entry(id).or_insert(OpenDoubt { token, mode, until, keys: Vec::new() });
                entry.keys.push(key.clone());
            }
        }
        open.into_values().collect()
    }

    /// Everything in flight, once.
    pub fn open_dispatches(&self) -> Vec<Claim> {
        let mut open: BTreeMap<DispatchId, (Token, Mode, Vec<ResourceKey>)> = BTreeMap::new();
        for (key, record) in &self.keys {
            for running in &record.running {
                let entry = open.entry(running.id).or_insert((running.token, running.mode, Vec::new()));
                entry.2.push(key.clone());
            }
        }
        let claim = |(token, mode, keys): (Token, Mode, Vec<ResourceKey>)| Claim {
            keys: keys.into(),
            token,
            mode,
            era: None,
        };
        open.into_values().map(claim).collect()
    }

    /// Executions in doubt.
    pub fn doubts(&self, now: Boot) -> usize {
        self.open_doubts(now).len()
    }
}
