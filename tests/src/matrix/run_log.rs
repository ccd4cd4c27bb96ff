//! The record of one run: the executions, the responses of the clients, and the state after the run.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use fencegate_policies::token::FencingToken;

use crate::{
    client::FencingOutcome,
    history::{ClientOutcome, Execution, History},
    origin::{AccessMode, AccountEffect, OriginLog, RequestRecord},
};

#[derive(Debug, Clone, Default)]
pub struct RunLog {
    pub deeds: Vec<KeyExecution>,
    pub asked: Vec<ClientAttempt>,
    /// The number of requests that the service refused because their token was stale.
    pub stale: usize,
    /// The newest token of each key that the guard or the comparing service remembers.
    pub marks: BTreeMap<String, FencingToken>,
    pub balances: BTreeMap<String, u64>,
    /// The nodes and gauges that remained after the run and should not.
    pub leftovers: Vec<String>,
    /// The accident, after which every key has to be served again; `None` if there was none.
    pub struck: Option<AccidentTime>,
    /// True if gateways forward requests to the holder of the key.
    pub forwards: bool,
}

/// One execution of one key. A request for several keys counts as one execution of each.
#[derive(Debug, Clone)]
pub struct KeyExecution {
    /// The execution as the listener saw it, with the gateway that got the client's request.
    pub door: Execution,
    pub effect: AccountEffect,
}

/// One attempt of a client, and its result.
#[derive(Debug, Clone)]
pub struct ClientAttempt {
    pub id: String,
    /// The operation of the attempt, if attempts repeat operations.
    pub operation: Option<String>,
    pub path: String,
    pub writes: bool,
    /// The index of the gateway that got the request.
    pub gateway: usize,
    pub invoked: Instant,
    pub completed: Instant,
    /// `None` if there was no complete response, or the client has disconnected.
    pub told: Option<ResponseContent>,
}

/// The content of a complete response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseContent {
    pub status: u16,
    pub outcome: Option<FencingOutcome>,
    pub body: String,
}

/// The time of the accident, and the time within which each path has to be served again.
#[derive(Debug, Clone)]
pub struct AccidentTime {
    pub from: Instant,
    pub bound: Duration,
    pub paths: Vec<String>,
}

/// The interval in which a request counts as being executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionInterval {
    /// From the first byte of the request to the last byte of the response, at the listener.
    Door,
    /// The time in which the service worked, as it recorded it.
    Effect,
}

/// The name of the gateway to which an attempt was sent, from the attempt's id.
pub fn attempt_id(id: &str) -> &str {
    id.rsplit_once('@').map_or("", |(_, gateway)| gateway)
}

impl KeyExecution {
    /// The executions of a request: one for each of its keys.
    fn from_record(record: &RequestRecord) -> Vec<Self> {
        let Some(effect) = record.effect else { return Vec::new() };
        let door = Execution::from_record(record);
        let gateway = door.attempt.as_deref().map_or("", attempt_id).to_owned();
        let keys = door.key.split(", ").map(str::to_owned);
        let of = |key| Self { door: Execution { key, gateway: gateway.clone(), ..door.clone() }, effect };
        keys.map(of).collect()
    }

    pub fn id(&self) -> &str {
        self.door.attempt.as_deref().unwrap_or_default()
    }

    pub fn writes(&self) -> bool {
        self.door.access == AccessMode::Exclusive
    }

    fn execution_by(&self, reading: ExecutionInterval) -> Execution {
        let AccountEffect { began, ended } = self.effect;
        match reading {
            ExecutionInterval::Door => self.door.clone(),
            ExecutionInterval::Effect => Execution { began, ended, ..self.door.clone() },
        }
    }
}

impl ClientAttempt {
    pub fn is_done(&self) -> bool {
        self.told
            .as_ref()
            .is_some_and(|told| told.outcome == Some(FencingOutcome::Done) && told.status == 200)
    }

    /// The outcome of this attempt. A 412 means that the service did nothing, and a 409 may be about an earlier
    /// attempt of the same operation, so both give `None`.
    fn own_outcome(&self) -> Option<FencingOutcome> {
        let told = self.told.as_ref()?;
        told.outcome.filter(|_| !matches!(told.status, 409 | 412))
    }

    /// True if the client was told that its operation is done, by this attempt or by another one.
    pub fn is_settled(&self) -> bool {
        let told = self.told.as_ref().and_then(|told| told.outcome);
        matches!(told, Some(FencingOutcome::Done | FencingOutcome::Replayed))
    }

    pub fn is_replayed(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.outcome == Some(FencingOutcome::Replayed))
    }
}

impl RunLog {
    /// The record of the executions that a service has seen.
    pub fn from_log(log: &OriginLog) -> Self {
        let deeds = log.records.iter().flat_map(KeyExecution::from_record).collect();
        let stale = log.records.iter().filter(|record| record.stale).count();
        Self { deeds, stale, ..Self::default() }
    }

    pub fn history_by(&self, reading: ExecutionInterval) -> History {
        // A request for several keys has one response, so give the attempt's id only to its first execution.
        let mut named = BTreeSet::new();
        let executions = self.deeds.iter().map(|deed| {
            let first = named.insert((deed.id(), deed.door.began));
            let attempt = deed.door.attempt.clone().filter(|_| first);
            Execution { attempt, ..deed.execution_by(reading) }
        });
        let told = self
            .asked
            .iter()
            .map(|asked| ClientOutcome { id: asked.id.clone(), outcome: asked.own_outcome() });
        History { executions: executions.collect(), attempts: told.collect() }
    }

    /// The time from the accident until, for each path, a request that was sent after the accident was served.
    /// `None` if a path was not served any more.
    pub fn recovery(&self) -> Option<Duration> {
        let AccidentTime { from, paths, .. } = self.struck.as_ref()?;
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
