//! Sends the questions of the backlog to the database, and makes sure that each is answered once.
//!
//! After a lost answer it is not known whether the statement took effect. So its questions are asked again under the
//! same names, on a new connection. Only the statements of the new connection count from then on: a statement of the
//! old one is over, or is refused.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use fencegate_process::failpoint;
use tokio::time::sleep;
use tokio_postgres::Statement;

use super::{
    backlog::Pending,
    connect::{Connection, For, Unanswered, millis},
    instance::Instance,
    item::{Answer, Answers, How, Item, keys_of},
    membership::Lost,
    migrate::FORMAT,
    unavailable::Unavailable,
};
use crate::metrics::GuardMetrics;

/// The one connection whose statements count.
struct Deciding {
    connection: Connection,
    statement: Statement,
    generation: i32,
}

/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);

/// How many statements in a row the server may give up before waiting callers are told.
const TRIES: u32 = 3;

/// Runs until the backlog is closed and empty.
pub(super) async fn run(instance: Arc<Instance>) {
    let mut deciding = None;
    let mut given_up = 0;
    while let Some(batch) = instance.backlog.next().await {
        let open = match deciding.take() {
            Some(open) => Ok(open),
            None => Deciding::open(&instance).await.inspect(|_| instance.count(GuardMetrics::reconnected)),
        };
        let open = match open {
            Ok(open) => open,
            Err(unavailable) => {
                tracing::warn!(error = %unavailable, "guard.store_away");
                instance.backlog.put_back(batch);
                instance.backlog.fail(&unavailable);
                sleep(PAUSE).await;
                continue;
            }
        };
        deciding = match open.ask(&instance, &batch).await {
            Ok(answers) => {
                given_up = 0;
                deliver(&instance, batch, answers);
                Some(open)
            }
            Err(Unanswered::Lost(why)) => {
                tracing::warn!(error = %why, "guard.store_answer_lost");
                instance.backlog.put_back(batch.into_iter().filter_map(Pending::lost).collect());
                None
            }
            Err(refused) if refused.may_pass() => {
                instance.backlog.put_back(batch);
                given_up += 1;
                if given_up >= TRIES {
                    instance.backlog.fail(&refused.into());
                }
                sleep(PAUSE).await;
                // A server that keeps refusing may not be the primary any more, so connect anew.
                (given_up < TRIES).then_some(open)
            }
            Err(_) => {
                one_by_one(&instance, &open, batch).await;
                Some(open)
            }
        };
    }
}

/// Asks each question of a batch by itself, because one of them has made the batch fail.
async fn one_by_one(instance: &Instance, open: &Deciding, batch: Vec<Pending>) {
    let mut left = batch.into_iter();
    while let Some(pending) = left.next() {
        let alone = vec![pending];
        match open.ask(instance, &alone).await {
            Ok(answers) => deliver(instance, alone, answers),
            Err(Unanswered::Refused { code, why }) => {
                tracing::error!(code, error = why, "guard.store_refuses");
                let unavailable = Unavailable::Refused(format!("{why} ({code})"));
                alone.into_iter().for_each(|pending| pending.fail(&unavailable));
            }
            Err(Unanswered::Lost(_)) => {
                let again = alone.into_iter().filter_map(Pending::lost);
                return instance.backlog.put_back(again.chain(left).collect());
            }
        }
    }
}

/// Gives each caller its answer. Registrations whose callers have gone are taken back.
fn deliver(instance: &Instance, batch: Vec<Pending>, answers: Answers) {
    instance.memory.acts.store(answers.acts, Ordering::SeqCst);
    for (pending, answer) in batch.into_iter().zip(answers.answers) {
        match &pending.item {
            Item::Look { how: How::Claim | How::Pass, claim, .. }
                if matches!(
                    answer,
                    Answer::Running | Answer::Wait { .. } | Answer::Closed { .. } | Answer::NotHeld
                ) =>
            {
                instance.memory.knows(claim.token.number());
            }
            Item::End { operation, .. } => {
                ring(instance, &pending.item, operation.as_ref().map(|(right, _)| right.id.to_string()));
            }
            Item::Release(right) => ring(instance, &pending.item, Some(right.id.to_string())),
            Item::Resolve { .. } => ring(instance, &pending.item, None),
            Item::Look { .. } | Item::Reserve(_) | Item::Write(..) => {}
        }
        pending.answered(answer, &instance.backlog);
    }
}

/// Wakes waiting requests of this process directly, without a notice from the database.
fn ring(instance: &Instance, item: &Item, operation: Option<String>) {
    item.keys().iter().for_each(|key| instance.wakes.ring(key.as_str()));
    operation.iter().for_each(|operation| instance.wakes.ring(operation));
}

impl Deciding {
    /// Opens the connection. After this, statements of an earlier connection of this instance are over, or are refused.
    async fn open(instance: &Instance) -> Result<Self, Unavailable> {
        let opened = Connection::open(&instance.place, For::Deciding, &instance.name).await;
        let connection = opened.map_err(|error| Unavailable::Unreachable(error.to_string()))?;
        let store = connection.ask(&instance.named("SELECT format, store FROM $$.store"), &[]).await?;
        let (format, store): (i32, String) = (store.get(0), store.get(1));
        if store != instance.identity.store {
            return Err(instance.lose(Lost::Another(store)));
        }
        if u32::try_from(format).is_ok_and(|format| format > FORMAT) {
            return Err(instance.lose(Lost::Newer(format.unsigned_abs())));
        }
        // Ends the earlier connection, which may wait for a lock or a standby and so hold us up. Its statements would
        // be refused even without this.
        let end_it = "SELECT count(pg_terminate_backend(pid, 500)) FROM pg_stat_activity
            WHERE application_name = $1 AND pid <> pg_backend_pid() AND datname = current_database()";
        if let Err(why @ Unanswered::Lost(_)) =
            connection.ask(end_it, &[&For::Deciding.application(&instance.name)]).await
        {
            return Err(why.into());
        }
        let acts = instance.memory.acts.load(Ordering::SeqCst);
        let resume = instance.named("SELECT $$.resume($1, $2, $3)");
        let resumed = connection.ask(&resume, &[&instance.id, &acts, &instance.memory.known()]).await?;
        let Some(generation) = resumed.get(0) else { return Err(instance.lose(Lost::Dead)) };
        let act = instance.named("SELECT $$.act($1, $2, $3, $4, $5, $6)");
        let prepared = connection.client().prepare(&act).await;
        let statement = prepared.map_err(|error| Unavailable::Unreachable(error.to_string()))?;
        Ok(Self { connection, statement, generation })
    }

    async fn ask(&self, instance: &Instance, batch: &[Pending]) -> Result<Answers, Unanswered> {
        let now = instance.clock.now();
        let slack = millis(instance.passed().unwritten(now));
        let longest = millis(instance.terms.send_within + instance.terms.max_execution);
        let grain = millis(instance.terms.evict_after / 64).max(1);
        let rows: Vec<_> =
            batch.iter().map(|pending| pending.item.written(pending.again, longest, now)).collect();
        let rows = serde_json::to_string(&rows).expect("plain fields serialise");
        let keys = keys_of(batch.iter().map(|pending| &pending.item));
        failpoint::pass("before_store_asked");
        let began = Instant::now();
        let row = self
            .connection
            .ask(&self.statement, &[&instance.id, &self.generation, &slack, &grain, &keys, &rows])
            .await?;
        instance.count(|metrics| {
            metrics.stored("decide", began.elapsed());
            metrics.grouped(batch.len());
        });
        failpoint::pass("after_store_answered");
        let lost = |why: &dyn std::fmt::Display| Unanswered::Lost(why.to_string());
        let answers: Answers = serde_json::from_str(row.get(0)).map_err(|error| lost(&error))?;
        if answers.acts == 0 {
            return Err(lost(&"another connection of this instance has taken its place"));
        }
        if answers.answers.len() != batch.len() {
            return Err(lost(&"not as many answers as questions"));
        }
        Ok(answers)
    }
}
