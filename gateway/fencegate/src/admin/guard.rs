//! What a guard shows and lets an operator decide: operations and executions whose outcome nobody saw.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use axum::{
    Extension, Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post},
};
use fencegate_guard::{
    Guard, Refusals,
    journal::Taken,
    operation::{Entry, Resolution},
    refused::Refused,
    register::{Quarantined, Scope, Why},
};
use fencegate_policies::{key::ResourceKey, token::Token};
use fencegate_process::{clock::Boot, shown::Names};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    api::{Outcome, parsed},
    door::Did,
    expose,
    fault::{Fault, Word},
    page::{self, Csrf},
};
use crate::metrics::Metrics;

/// What the admin listener of a guard shows.
#[derive(Clone)]
pub struct Seen {
    pub guard: Arc<Guard>,
    pub metrics: Arc<Metrics>,
    pub drain: CancellationToken,
    /// Asks the process to end in order.
    pub end: CancellationToken,
    pub csrf: Csrf,
    pub names: Names,
}

/// An operation or execution that nobody knows the outcome of.
#[derive(Debug, Serialize, Deserialize)]
pub struct Open {
    /// To name it by: of an operation, or the token of an execution that is none.
    pub reference: String,
    pub kind: Kind,
    /// As the guard's file lets its log call them.
    pub keys: Vec<String>,
    pub token: Token,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted: Option<u64>,
    /// Until the key is free again without anybody's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closes_key_for_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Happens at most once: nobody may repeat it before somebody has said what came of it.
    Operation,
    /// Closes its keys for a while, and is remembered no longer than that.
    Execution,
}

/// What an operator says of an operation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resolve {
    outcome: Outcome,
}

type Answer = Result<Json<Value>, Fault>;

/// Of what changes something, with what it did, for the audit log.
type Done = Result<(Extension<Did>, Json<Value>), Fault>;

/// Operations shown at most.
const MOST: usize = 1000;

pub fn routes(seen: Seen) -> Router {
    let (metrics, counted) = (seen.metrics.clone(), seen.guard.clone());
    Router::new()
        .route("/ready", get(ready))
        .route("/api/v1/operations", get(operations))
        .route("/api/v1/operations/{reference}/resolve", post(resolve))
        .route("/api/v1/operations/{reference}/forget", post(forget))
        .route("/api/v1/drain", post(drain))
        .route("/api/v1/keys/{*key}", get(key))
        .route("/api/v1/refusals", get(refusals))
        .merge(page::of_guard())
        .with_state(seen)
        .merge(expose(metrics, move || counted.count()))
}

/// 200 when something could be admitted now: on some keys, that is.
async fn ready(State(seen): State<Seen>) -> (StatusCode, String) {
    if seen.drain.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n".into());
    }
    match seen.guard.quarantine() {
        None => (StatusCode::OK, "ready\n".into()),
        Some(closed) => {
            let status = match closed.scope {
                Scope::Keys(_) => StatusCode::OK,
                Scope::EveryKey(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, format!("{}\n", quarantine(closed, seen.guard.now())))
        }
    }
}

/// What is closed, why, and for how long, in one sentence.
pub(super) fn quarantine(closed: Quarantined, now: Boot) -> String {
    let left = closed.until.since(now);
    match closed.scope {
        Scope::Keys(1) => {
            format!("ready; 1 key was at work at an unclean stop, and is in quarantine for {left:.1?}")
        }
        Scope::Keys(keys) => {
            format!(
                "ready; {keys} keys were at work at an unclean stop, and are in quarantine for {left:.1?}"
            )
        }
        Scope::EveryKey(Why::NewStore) => {
            format!(
                "in quarantine for {left:.1?}: the store is new, and another guard may have sent what still runs"
            )
        }
        Scope::EveryKey(Why::OlderBuild) => format!(
            "in quarantine for {left:.1?}: an older build kept the store, which did not note which keys are at work"
        ),
    }
}

/// As SIGTERM: the process ends when everything that runs has ended.
async fn drain(State(seen): State<Seen>) -> (StatusCode, Extension<Did>, Json<Value>) {
    seen.end.cancel();
    (StatusCode::ACCEPTED, Extension(Did("drain".into())), Json(json!({ "draining": true })))
}

async fn operations(State(seen): State<Seen>) -> Answer {
    let open = seen.open().map_err(|refused| away(&refused))?;
    Ok(Json(json!({ "operations": open })))
}

impl Seen {
    /// Everything that nobody knows the outcome of.
    pub(super) fn open(&self) -> Result<Vec<Open>, Refused> {
        let guard = &self.guard;
        let unfinished = guard.unfinished(MOST)?;
        let doubts = guard.doubts();
        let until: HashMap<Token, Boot> = doubts.iter().map(|doubt| (doubt.token, doubt.until)).collect();
        let closes = |token: Token| u64::try_from(until.get(&token)?.since(guard.now()).as_millis()).ok();
        let names = self.names;
        let operation = |reference: String, entry: Entry| Open {
            reference,
            kind: Kind::Operation,
            closes_key_for_ms: closes(entry.token),
            keys: names.of_each(&entry.keys),
            token: entry.token,
            method: Some(entry.method),
            target: names.shows_targets().then_some(entry.target),
            // It may be the name of an order.
            idempotency_key: entry.name.filter(|_| names.shows_targets()),
            admitted: Some(entry.admitted),
        };
        let mut open: Vec<Open> =
            unfinished.into_iter().map(|(id, entry)| operation(id.reference(), entry)).collect();
        let known: HashSet<Token> = open.iter().map(|open| open.token).collect();
        open.extend(doubts.iter().filter(|doubt| !known.contains(&doubt.token)).map(|doubt| Open {
            reference: doubt.token.to_string(),
            kind: Kind::Execution,
            keys: names.of_each(&doubt.keys),
            token: doubt.token,
            method: None,
            target: None,
            idempotency_key: None,
            admitted: None,
            closes_key_for_ms: closes(doubt.token),
        }));
        Ok(open)
    }

    /// An operator knows what came of it.
    pub(super) async fn resolve(&self, reference: &str, outcome: Outcome) -> Result<Did, Fault> {
        let guard = &self.guard;
        let done = outcome == Outcome::Done;
        let did = |what: &str| Did(format!("resolved {what} as {}", if done { "done" } else { "not done" }));
        if let Ok(token) = Token::parse(reference) {
            let doubt = guard.doubts().into_iter().find(|doubt| doubt.token == token);
            let over = doubt.is_some_and(|doubt| guard.over(&doubt.keys, token, "operator"));
            return if over { Ok(did(&format!("execution {token}"))) } else { Err(unknown(reference)) };
        }
        let found = guard.by_reference(reference).map_err(|refused| away(&refused))?;
        let (id, _) = found.ok_or_else(|| unknown(reference))?;
        let taken = guard.take_unfinished(id).map_err(|refused| away(&refused))?;
        let Taken::Yours(reservation, entry) = taken else { return Err(unknown(reference)) };
        guard.over(&entry.keys, entry.token, "operator");
        let written = if done {
            reservation.resolve_done(&entry, Resolution::Operator).await
        } else {
            reservation.resolve_not_done().await
        };
        written.map_err(|refused| away(&refused))?;
        Ok(did(&format!("operation {reference} of token {}", entry.token)))
    }
}

async fn resolve(State(seen): State<Seen>, Path(reference): Path<String>, body: Bytes) -> Done {
    let Resolve { outcome } = parsed(&body)?;
    let did = seen.resolve(&reference, outcome).await?;
    Ok((Extension(did), Json(json!({ "resolved": reference }))))
}

/// A finished operation and its kept answer are forgotten at once.
async fn forget(State(seen): State<Seen>, Path(reference): Path<String>) -> Done {
    match seen.guard.forget(&reference).await {
        Ok(true) => {
            let did = Did(format!("forgot operation {}", reference.escape_debug()));
            Ok((Extension(did), Json(json!({ "forgotten": reference }))))
        }
        Ok(false) => Err(unknown(&reference)),
        Err(refused) => Err(away(&refused)),
    }
}

async fn key(State(seen): State<Seen>, Path(key): Path<String>) -> Answer {
    let parsed = ResourceKey::parse(&key).ok();
    let known = parsed.and_then(|key| Some((seen.names.of(&key), seen.guard.seen(&key)?)));
    let Some((key, known)) = known else { return Err(unknown(&key)) };
    let running: Vec<_> = known.running.iter().map(|running| running.token).collect();
    let doubts: Vec<_> = known.doubts.iter().map(|doubt| doubt.token).collect();
    Ok(Json(json!({
        "key": key, "write": known.write, "read": known.read, "in_flight": running, "in_doubt": doubts,
    })))
}

async fn refusals(State(seen): State<Seen>) -> Json<Value> {
    let Refusals { stale, latest } = seen.guard.refusals();
    let latest = latest.map(|one| {
        json!({ "keys": seen.names.of_each(&one.keys), "presented": one.presented, "newest": one.newest })
    });
    Json(json!({ "stale": stale, "latest": latest }))
}

fn unknown(what: &str) -> Fault {
    Fault::new(Word::NotFound, format!("nothing known of `{what}`, or it is running"))
}

pub(super) fn away(refused: &Refused) -> Fault {
    Fault::new(Word::Away, refused.to_string())
}
