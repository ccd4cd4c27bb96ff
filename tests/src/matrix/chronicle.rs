//! All that is known of one run: what was executed, what clients were told, and what was left behind.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use fencegate_policies::token::Token;

use crate::{
    client::Outcome,
    history::{Attempt, Execution, History},
    origin::{Access, Effect, Log, Record},
};

#[derive(Debug, Clone, Default)]
pub struct Chronicle {
    pub deeds: Vec<Deed>,
    pub asked: Vec<Asked>,
    /// Requests that the service refused because of their token.
    pub stale: usize,
    /// The newest token of each key that whoever compares remembers.
    pub marks: BTreeMap<String, Token>,
    pub balances: BTreeMap<String, u64>,
    /// What should have come to nothing once everything was quiet, and had not.
    pub leftovers: Vec<String>,
    /// What had happened by then has to be overcome.
    pub struck: Option<Struck>,
    /// Requests come through whichever gateway has the key.
    pub forwards: bool,
}

/// One execution of one key. A request for several keys is one of each.
#[derive(Debug, Clone)]
pub struct Deed {
    /// As the door saw it, with the gateway that the client had asked.
    pub door: Execution,
    pub effect: Effect,
}

/// One attempt of a client, and how it ended.
#[derive(Debug, Clone)]
pub struct Asked {
    pub id: String,
    /// What it stands for, where attempts repeat each other.
    pub operation: Option<String>,
    pub path: String,
    pub writes: bool,
    /// By position.
    pub gateway: usize,
    pub invoked: Instant,
    pub completed: Instant,
    /// None: there was no complete answer, or the client has gone.
    pub told: Option<Said>,
}

/// What a complete answer said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub status: u16,
    pub outcome: Option<Outcome>,
    pub body: String,
}

/// When it was, and within which time each key has to be served again.
#[derive(Debug, Clone)]
pub struct Struck {
    pub from: Instant,
    pub bound: Duration,
    pub paths: Vec<String>,
}

/// From when to when a request counts as executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// From the first byte of its head to the last one of its answer.
    Door,
    /// What the service did in between.
    Effect,
}

/// Which gateway an attempt was sent to.
pub fn asked_of(id: &str) -> &str {
    id.rsplit_once('@').map_or("", |(_, gateway)| gateway)
}

impl Deed {
    /// One for each key.
    fn of(record: &Record) -> Vec<Self> {
        let Some(effect) = record.effect else { return Vec::new() };
        let door = Execution::of(record);
        let gateway = door.attempt.as_deref().map_or("", asked_of).to_owned();
        let keys = door.key.split(", ").map(str::to_owned);
        let of = |key| Self { door: Execution { key, gateway: gateway.clone(), ..door.clone() }, effect };
        keys.map(of).collect()
    }

    pub fn id(&self) -> &str {
        self.door.attempt.as_deref().unwrap_or_default()
    }

    pub fn writes(&self) -> bool {
        self.door.access == Access::Exclusive
    }

    fn read_as(&self, reading: Reading) -> Execution {
        let Effect { began, ended } = self.effect;
        match reading {
            Reading::Door => self.door.clone(),
            Reading::Effect => Execution { began, ended, ..self.door.clone() },
        }
    }
}

impl Asked {
    pub fn is_done(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.outcome == Some(Outcome::Done) && told.status == 200)
    }

    /// What it was told of its own execution: 412 is the service's word that it did nothing, and 409 may be about an earlier
    /// attempt of the same operation.
    fn own_outcome(&self) -> Option<Outcome> {
        let told = self.told.as_ref()?;
        told.outcome.filter(|_| !matches!(told.status, 409 | 412))
    }

    /// It was told that what it stands for is done, by this attempt or by another one.
    pub fn is_settled(&self) -> bool {
        let told = self.told.as_ref().and_then(|told| told.outcome);
        matches!(told, Some(Outcome::Done | Outcome::Replayed))
    }

    pub fn is_replayed(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.outcome == Some(Outcome::Replayed))
    }
}

impl Chronicle {
    /// What the service has seen.
    pub fn of(log: &Log) -> Self {
        let deeds = log.records.iter().flat_map(Deed::of).collect();
        let stale = log.records.iter().filter(|record| record.stale).count();
        Self { deeds, stale, ..Self::default() }
    }

    pub fn read_as(&self, reading: Reading) -> History {
        // What a request for several keys is told is told of all of them: its name stands in one place.
        let mut named = BTreeSet::new();
        let executions = self.deeds.iter().map(|deed| {
            let first = named.insert((deed.id(), deed.door.began));
            let attempt = deed.door.attempt.clone().filter(|_| first);
            Execution { attempt, ..deed.read_as(reading) }
        });
        let told =
            self.asked.iter().map(|asked| Attempt { id: asked.id.clone(), outcome: asked.own_outcome() });
        History { executions: executions.collect(), attempts: told.collect() }
    }

    /// From the blow until each key was served to somebody who asked afterwards; none where one never was.
    pub fn recovery(&self) -> Option<Duration> {
        let Struck { from, paths, .. } = self.struck.as_ref()?;
        let first = |path: &String| {
            let done = self
                .asked
                .iter()
                .filter(|asked| asked.path == *path && asked.invoked >= *from && asked.is_done());
            done.map(|asked| asked.completed).min()
        };
        let firsts: Option<Vec<Instant>> = paths.iter().map(first).collect();
        Some(firsts?.into_iter().max()?.duration_since(*from))
    }
}
