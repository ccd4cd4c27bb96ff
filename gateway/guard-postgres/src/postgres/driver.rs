//! Sends the queued requests to the database, and makes sure that each gets one reply.
//!
//! After a lost reply it is not known whether the statement took effect. So its requests are sent again under the
//! same names, on a new connection. Only the statements of the new connection count from then on: a statement of the
//! old one is over, or is refused.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use fencegate_guard_store::metrics::GuardMetrics;
use fencegate_process::failpoint;
use tokio::time::sleep;
use tokio_postgres::Statement;

use super::{
    connect::{PostgresConnection, PostgresConnectionPurpose, StatementError, millis},
    error::PostgresError,
    instance::PostgresStoreInner,
    membership::GuardMembershipLostError,
    migrate::FORMAT,
    request::{AdmitKind, DbReply, DbReplyBatch, DbRequest, distinct_keys},
    request_queue::{MOST_AT_ONCE, PendingDbRequest},
};

/// The one connection whose statements count.
struct DecisionConnection {
    connection: PostgresConnection,
    statement: Statement,
    generation: i32,
}

/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);

/// How many statements in a row the server may give up before waiting callers get an error.
const TRIES: u32 = 3;

/// Runs until the queue is closed and empty.
pub(super) async fn run(instance: Arc<PostgresStoreInner>) {
    let mut deciding = None;
    let mut given_up = 0;
    let mut room = StatementBatchSize::default();
    while let Some(batch) = instance.requests.next_batch(room.0).await {
        let open = match deciding.take() {
            Some(open) => Ok(open),
            None => DecisionConnection::open(&instance)
                .await
                .inspect(|_| instance.with_metrics(GuardMetrics::record_reconnect)),
        };
        let open = match open {
            Ok(open) => open,
            Err(unavailable) => {
                tracing::warn!(error = %unavailable, "guard.store_away");
                instance.requests.push_front(batch);
                instance.requests.fail_callers(&unavailable);
                sleep(PAUSE).await;
                continue;
            }
        };
        deciding = match open.send_batch(&instance, &batch).await {
            Ok(answers) => {
                given_up = 0;
                room.grow(batch.len());
                deliver(&instance, batch, answers);
                Some(open)
            }
            Err(StatementError::Lost(error)) => {
                tracing::warn!(error = %error, "guard.store_answer_lost");
                // The batch may have been too large to be answered in time.
                room.lower_batch_limit(batch.len());
                instance
                    .requests
                    .push_front(batch.into_iter().filter_map(PendingDbRequest::retry_or_cancel).collect());
                None
            }
            Err(refused) => {
                let sent = batch.len();
                let refused = if refused.is_transient() {
                    requeue(&instance, batch);
                    Some((refused, sent))
                } else {
                    send_one_by_one(&instance, &open, batch).await.map(|refused| (refused, 1))
                };
                match refused {
                    None => Some(open),
                    Some((refused, sent)) => {
                        if refused.is_overload() {
                            room.lower_batch_limit(sent);
                        }
                        given_up += 1;
                        if given_up >= TRIES {
                            instance.requests.fail_callers(&refused.into());
                        }
                        sleep(PAUSE).await;
                        // A server that keeps refusing may not be the primary any more, so connect anew.
                        (given_up < TRIES).then_some(open)
                    }
                }
            }
        };
    }
}

/// How many requests go in one statement: fewer after the server had no time or memory for as many.
#[derive(Debug, PartialEq, Eq)]
struct StatementBatchSize(usize);

impl Default for StatementBatchSize {
    fn default() -> Self {
        Self(MOST_AT_ONCE)
    }
}

impl StatementBatchSize {
    fn lower_batch_limit(&mut self, sent: usize) {
        self.0 = (sent / 2).max(1);
    }

    /// Grows by an eighth. Only a reply to a full batch shows that a larger one may succeed.
    fn grow(&mut self, sent: usize) {
        if sent >= self.0 {
            self.0 = (self.0 + self.0 / 8 + 1).min(MOST_AT_ONCE);
        }
    }
}

/// Puts a refused batch in front of all other requests. If it is nothing but the end of one dispatch, it goes
/// behind the others, which may succeed.
fn requeue(instance: &PostgresStoreInner, mut batch: Vec<PendingDbRequest>) {
    let alone = batch.len() == 1;
    match batch.pop_if(|last| alone && last.is_dispatch_end()) {
        Some(end) => instance.requests.push_back(end),
        None => instance.requests.push_front(batch),
    }
}

/// Sends each request of a batch by itself, because one of them has made the batch fail. If a refusal is
/// temporary, it is returned, and all unanswered requests are queued again.
async fn send_one_by_one(
    instance: &PostgresStoreInner,
    open: &DecisionConnection,
    batch: Vec<PendingDbRequest>,
) -> Option<StatementError> {
    let mut left = batch.into_iter();
    while let Some(pending) = left.next() {
        let alone = vec![pending];
        match open.send_batch(instance, &alone).await {
            Ok(answers) => deliver(instance, alone, answers),
            Err(StatementError::Lost(_)) => {
                let again = alone.into_iter().filter_map(PendingDbRequest::retry_or_cancel);
                instance.requests.push_front(again.chain(left).collect());
                return None;
            }
            Err(refused) if refused.is_transient() => {
                instance.requests.push_front(left.collect());
                requeue(instance, alone);
                return Some(refused);
            }
            Err(StatementError::Refused { code, why }) => {
                tracing::error!(code, error = why, "guard.store_refuses");
                let unavailable = PostgresError::Refused(format!("{why} ({code})"));
                let rest = alone.into_iter().filter_map(|pending| pending.reject_into_cleanup(&unavailable));
                rest.for_each(|rest| instance.requests.push_back(rest));
            }
        }
    }
    None
}

/// Delivers each reply to its caller. Registrations whose callers have gone are released.
fn deliver(instance: &PostgresStoreInner, batch: Vec<PendingDbRequest>, answers: DbReplyBatch) {
    instance.acknowledged.acts.store(answers.acts, Ordering::SeqCst);
    for (pending, answer) in batch.into_iter().zip(answers.answers) {
        match &pending.item {
            DbRequest::Look { how: AdmitKind::Claim | AdmitKind::Pass, claim, .. }
                if matches!(
                    answer,
                    DbReply::Running | DbReply::Wait { .. } | DbReply::Closed { .. } | DbReply::NotHeld
                ) =>
            {
                instance.acknowledged.record_acknowledged_epoch(claim.token.number());
            }
            DbRequest::End { operation, .. } => {
                notify_waiters(
                    instance,
                    &pending.item,
                    operation.as_ref().map(|(lock, _)| lock.id.to_string()),
                );
            }
            DbRequest::Release(lock) => notify_waiters(instance, &pending.item, Some(lock.id.to_string())),
            DbRequest::Resolve { .. } => notify_waiters(instance, &pending.item, None),
            DbRequest::Look { .. } | DbRequest::Reserve(_) | DbRequest::Write(..) | DbRequest::Nothing => {}
        }
        pending.deliver(answer, &instance.requests);
    }
}

/// Wakes waiting requests of this process directly, without a notice from the database.
fn notify_waiters(instance: &PostgresStoreInner, item: &DbRequest, operation: Option<String>) {
    item.keys().iter().for_each(|key| instance.notifiers.wake_waiters(key.as_str()));
    operation.iter().for_each(|operation| instance.notifiers.wake_waiters(operation));
}

/// Ends the dispatches that the database has in the name of this guard and that this guard has no handle of.
/// After a rollback of the database these are dispatches that had ended. Requests on this connection are sent
/// only after this, so their dispatches are not affected.
async fn end_unowned_dispatches(
    instance: &PostgresStoreInner,
    connection: &PostgresConnection,
    generation: i32,
) -> Result<(), StatementError> {
    let slack = millis(instance.clock_samples().max_unwritten_clock_time(instance.clock.now()));
    let in_hand = instance.names.row_names_in_use();
    let disown = instance.with_schema("SELECT dispatches, rights FROM $$.disown($1, $2, $3, $4)");
    let gone = connection.query_one(&disown, &[&instance.id, &generation, &slack, &in_hand]).await?;
    let dispatches: i64 = gone.get(0);
    let rights: i64 = gone.get(1);
    if dispatches + rights > 0 {
        tracing::warn!(
            dispatches,
            rights,
            "guard.store_disowned: the database had lost the ends of dispatches, and they were ended again"
        );
    }
    Ok(())
}

impl DecisionConnection {
    /// Opens the connection. After this, statements of an earlier connection of this instance are over, or are refused.
    async fn open(instance: &PostgresStoreInner) -> Result<Self, PostgresError> {
        let opened =
            PostgresConnection::open(&instance.place, PostgresConnectionPurpose::Decisions, &instance.name)
                .await;
        let connection = opened.map_err(|error| PostgresError::Unreachable(error.to_string()))?;
        let store =
            connection.query_one(&instance.with_schema("SELECT format, store FROM $$.store"), &[]).await?;
        let format: i32 = store.get(0);
        let store: String = store.get(1);
        if store != instance.identity.store {
            return Err(instance.mark_lost(GuardMembershipLostError::Another(store)));
        }
        if u32::try_from(format).is_ok_and(|format| format > FORMAT) {
            return Err(instance.mark_lost(GuardMembershipLostError::Newer(format.unsigned_abs())));
        }
        // Ends the earlier connection, which may wait for a lock or a standby and so block this one. Its statements
        // would be refused even without this.
        let end_it = "SELECT count(pg_terminate_backend(pid, 500)) FROM pg_stat_activity
            WHERE application_name = $1 AND pid <> pg_backend_pid() AND datname = current_database()";
        if let Err(error @ StatementError::Lost(_)) = connection
            .query_one(end_it, &[&PostgresConnectionPurpose::Decisions.application_name(&instance.name)])
            .await
        {
            return Err(error.into());
        }
        let acts = instance.acknowledged.acts.load(Ordering::SeqCst);
        let resume = instance.with_schema("SELECT $$.resume($1, $2, $3)");
        let resumed = connection
            .query_one(&resume, &[&instance.id, &acts, &instance.acknowledged.highest_acknowledged_epoch()])
            .await?;
        let Some(generation) = resumed.get(0) else {
            return Err(instance.mark_lost(GuardMembershipLostError::Dead));
        };
        end_unowned_dispatches(instance, &connection, generation).await?;
        let act = instance.with_schema("SELECT $$.act($1, $2, $3, $4, $5, $6)");
        let prepared = connection.client().prepare(&act).await;
        let statement = prepared.map_err(|error| PostgresError::Unreachable(error.to_string()))?;
        Ok(Self { connection, statement, generation })
    }

    async fn send_batch(
        &self,
        instance: &PostgresStoreInner,
        batch: &[PendingDbRequest],
    ) -> Result<DbReplyBatch, StatementError> {
        let now = instance.clock.now();
        let slack = millis(instance.clock_samples().max_unwritten_clock_time(now));
        let longest = millis(instance.terms.send_within + instance.terms.max_execution);
        let grain = millis(instance.terms.evict_after / 64).max(1);
        let rows: Vec<_> =
            batch.iter().map(|pending| pending.item.to_row(pending.again, longest, now)).collect();
        let rows = serde_json::to_string(&rows).expect("plain fields serialise");
        let keys = distinct_keys(batch.iter().map(|pending| &pending.item));
        failpoint::pass("before_store_asked");
        let began = Instant::now();
        let row = self
            .connection
            .query_one(&self.statement, &[&instance.id, &self.generation, &slack, &grain, &keys, &rows])
            .await?;
        instance.with_metrics(|metrics| {
            metrics.observe_store_duration("decide", began.elapsed());
            metrics.observe_batch_size(batch.len());
        });
        failpoint::pass("after_store_answered");
        let lost = |why: &dyn std::fmt::Display| StatementError::Lost(why.to_string());
        let answers: DbReplyBatch = serde_json::from_str(row.get(0)).map_err(|error| lost(&error))?;
        if answers.acts == 0 {
            return Err(lost(&"another connection of this instance has taken its place"));
        }
        if answers.answers.len() != batch.len() {
            return Err(lost(&"not as many answers as questions"));
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refused batch halves the batch size, and answered full batches raise it slowly, within its bounds.
    #[test]
    fn batch_size_halves_then_grows_slowly() {
        let mut room = StatementBatchSize::default();
        room.lower_batch_limit(60);
        assert_eq!(room, StatementBatchSize(30));
        room.grow(29);
        assert_eq!(room, StatementBatchSize(30), "it may be that more is too much");
        room.grow(30);
        assert_eq!(room, StatementBatchSize(34));
        for _ in 0..9 {
            room.lower_batch_limit(room.0);
        }
        assert_eq!(room, StatementBatchSize(1));
        for _ in 0..60 {
            room.grow(room.0);
        }
        assert_eq!(room, StatementBatchSize(MOST_AT_ONCE));
    }
}
