//! The task of one cached key, which runs as long as a request here wants the key: acquires the lock, keeps it for
//! later requests, and releases it in time.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use fencegate_process::{clock::BootInstant, failpoint, key_redaction};
use fencegate_recipe::{
    attempt::LockAttempt,
    grant::{LockAttemptError, LockAttemptObserver, LockGrant},
    lock_node::{REFUSED_PAUSE, RETRY_PAUSE},
};
use fencegate_zookeeper::{
    error::GrantError,
    peer_endpoint::HolderRoute,
    session::{
        active_session::{ActiveSession, CurrentSession},
        client::{ZkClient, ZkConnectionState, ZkError},
    },
    tenure_end::{TenureEnd, TenureEndCause},
};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{
    key_slot::{FirstWaitingRequest, KeySlot},
    panic_guard::{FAILED, catch_panic},
    queue::TenureDecision,
};
use crate::manager::key_slot::table::KeySlotTable;

/// Runs until no request wants the key any more.
///
/// A gateway may cache tens of thousands of keys, and a task takes as much memory as the largest future that it ever
/// awaits. So every future that is not awaited while a key is cached has a box of its own.
///
/// After a panic the lock is kept until no request is in flight under it, and only then released, because those
/// requests are not affected by the panic. Waiting requests are refused, and later ones are served as usual.
pub(crate) async fn run_key_task<L: ZkClient>(
    slot: Arc<KeySlot>,
    table: Arc<KeySlotTable>,
    current: Rc<CurrentSession<L>>,
) {
    let nodes = OwnLockNodes::default();
    while catch_panic(serve_key(&slot, &table, &current, &nodes)).await.is_none() {
        while catch_panic(Box::pin(refuse_after_panic(&slot, &nodes))).await.is_none() {
            sleep(REFUSED_PAUSE).await;
        }
    }
}

/// The lock nodes that the task of a key has.
struct OwnLockNodes<L: ZkClient> {
    /// The node of the slot's tenure, or of the tenure that has just ended.
    held: RefCell<Option<Rc<LockAttempt<L>>>>,
    /// The node that waits for the grant.
    asked: RefCell<Option<Rc<LockAttempt<L>>>>,
}

impl<L: ZkClient> Default for OwnLockNodes<L> {
    fn default() -> Self {
        Self { held: RefCell::default(), asked: RefCell::default() }
    }
}

impl<L: ZkClient> OwnLockNodes<L> {
    fn held_attempt(&self) -> Option<Rc<LockAttempt<L>>> {
        self.held.borrow().clone()
    }

    /// Registers an attempt; call this before the attempt sends anything.
    fn register_waiting_attempt(&self, attempt: LockAttempt<L>) -> Rc<LockAttempt<L>> {
        let attempt = Rc::new(attempt);
        self.asked.replace(Some(attempt.clone()));
        attempt
    }

    /// Records that the waiting attempt was granted, and forgets the former one, whose node is gone.
    fn promote_waiting_attempt(&self) {
        self.held.replace(self.asked.take());
    }

    /// Removes the nodes. Returns when no node is left, or when the session is over.
    async fn remove_key_nodes(&self) {
        for place in [&self.asked, &self.held] {
            let attempt = place.borrow().clone();
            if let Some(attempt) = attempt {
                attempt.remove_nodes().await;
                place.take();
            }
        }
    }
}

/// Handles a panic: refuses the waiting requests, and keeps the lock until nothing is in flight under it.
async fn refuse_after_panic<L: ZkClient>(slot: &Arc<KeySlot>, nodes: &OwnLockNodes<L>) {
    slot.close_and_refuse_waiting(&GrantError::Service(FAILED.into()));
    if let Some(held) = nodes.held_attempt() {
        hold_until_due(slot, &held.candidate.live, &held).await;
    }
    nodes.remove_key_nodes().await;
}

async fn serve_key<L: ZkClient>(
    slot: &Arc<KeySlot>,
    table: &Arc<KeySlotTable>,
    current: &Rc<CurrentSession<L>>,
    nodes: &OwnLockNodes<L>,
) {
    // The number of times that the queue position was lost since the last grant.
    let mut lost = 0_u32;
    loop {
        let Some(wanted) = slot.first_waiting_request() else {
            Box::pin(nodes.remove_key_nodes()).await;
            if table.remove_if_idle(slot) {
                return;
            }
            continue;
        };
        let Some(live) = Box::pin(wait_for_session(slot, current)).await else { continue };
        slot.reset_position();
        match Box::pin(acquire(slot, table, &live, &wanted, nodes)).await {
            Ok((attempt, grant)) => {
                // No request is forwarded from here while the key is held here.
                table.holder_cache.clear_holder_route(&slot.key);
                lost = 0;
                slot.set_granted(grant, wanted);
                hold_until_due(slot, &live, &attempt).await;
            }
            Err(GrantError::Lost) => {
                slot.report_queue_position_lost();
                debug!(key = key_redaction::redact_key(&slot.key), "place lost; queueing again");
                lost = lost.saturating_add(1);
                pause_after_lost_position(lost).await;
            }
            Err(error) => slot.refuse_waiting(&error),
        }
    }
}

/// Lets other tasks run before the next attempt. After the end of a session the client library fails every request at
/// once: without this the loop would never yield, and the task that keeps the session would not notice the end. The
/// first loss may be a removed node, so the first retry has no delay.
async fn pause_after_lost_position(lost: u32) {
    match lost {
        0 | 1 => tokio::task::yield_now().await,
        _ => sleep(RETRY_PAUSE).await,
    }
}

/// Waits for a session, and returns it; `None` when no request wants the key any more.
async fn wait_for_session<L: ZkClient>(
    slot: &KeySlot,
    current: &CurrentSession<L>,
) -> Option<Rc<ActiveSession<L>>> {
    loop {
        let is_over = |live: &Rc<ActiveSession<L>>| {
            live.ended.is_cancelled() || live.client.state() == ZkConnectionState::Ended
        };
        if let Some(live) = current.session().filter(|live| !is_over(live)) {
            return Some(live);
        }
        slot.report_queue_position_lost();
        tokio::select! {
            () = current.wait_session_changed() => {}
            () = slot.wait_changed() => { slot.first_waiting_request()?; }
        }
    }
}

/// Acquires the lock. If this gateway's former node has to be released, the same transaction removes it and creates
/// the new one, so that yielding and queueing again cost one write. Without a grant no node is left.
async fn acquire<L: ZkClient>(
    slot: &Arc<KeySlot>,
    table: &Arc<KeySlotTable>,
    live: &Rc<ActiveSession<L>>,
    wanted: &FirstWaitingRequest,
    nodes: &OwnLockNodes<L>,
) -> Result<(Rc<LockAttempt<L>>, LockGrant), GrantError> {
    let old = match nodes.held_attempt() {
        Some(old) if !Rc::ptr_eq(&old.candidate.live, live) => {
            // The former node belongs to a session that is over.
            nodes.remove_key_nodes().await;
            None
        }
        old => old,
    };
    let begun = match &old {
        Some(old) => old.successor(wanted.mode),
        None => LockAttempt::begin(live, &slot.key, &slot.site, wanted.mode).await?,
    };
    let attempt =
        nodes.register_waiting_attempt(begun.with_gateway_reference().with_handover_delay(wanted.delay));
    let mut waiting = LocalQueueObserver { slot: slot.clone(), table: table.clone() };
    let started = live.clock.now();
    let granted = match &old {
        Some(old) => attempt.acquire_instead_of(old, &mut waiting).await,
        None => attempt.acquire(&mut waiting).await,
    };
    if let Some(old) = old {
        old.remove_nodes().await;
    }
    match granted {
        Ok(grant) => {
            live.metrics.record_grant(live.clock.now().since(started));
            live.registry.register_evictable(attempt.candidate.guid, slot);
            nodes.promote_waiting_attempt();
            Ok((attempt, grant))
        }
        Err(stop) => {
            nodes.remove_key_nodes().await;
            Err(match stop {
                LockAttemptError::CallerGone => GrantError::Lost,
                LockAttemptError::NotGranted(error) => error,
            })
        }
    }
}

/// The waiting local requests of a key. Together they are one caller of its attempt.
struct LocalQueueObserver {
    slot: Arc<KeySlot>,
    table: Arc<KeySlotTable>,
}

impl LockAttemptObserver for LocalQueueObserver {
    fn is_closed(&self) -> bool {
        self.slot.first_waiting_request().is_none()
    }

    async fn closed(&mut self) {
        while self.slot.first_waiting_request().is_some() {
            self.slot.wait_changed().await;
        }
    }

    fn on_waiting(&mut self) -> Result<(), LockAttemptError> {
        self.slot.report_holder_ahead()
    }

    fn on_delay(&mut self, until: BootInstant) {
        self.slot.report_delay(until);
    }

    fn wants_forwarding(&mut self) -> bool {
        self.slot.take_holder_lookup_request()
    }

    fn on_holder_route(&mut self, route: Option<HolderRoute>) -> Result<(), LockAttemptError> {
        match route.filter(|route| !self.table.is_unreachable(route)) {
            Some(route) => {
                // The route is cached first, so that a request that comes now is forwarded without waiting here.
                self.table.record_holder(&self.slot.key, &route);
                self.slot.forward_waiting(&route)
            }
            None => self.slot.report_no_route(),
        }
    }

    async fn wait_callers_changed(&mut self) {
        self.slot.wait_changed().await;
    }
}

/// Keeps the tenure until it is due to end and nothing is in flight under it. On return the slot has no tenure any
/// more.
async fn hold_until_due<L: ZkClient>(
    slot: &Arc<KeySlot>,
    live: &Rc<ActiveSession<L>>,
    attempt: &LockAttempt<L>,
) {
    // The watch is set while requests already run under the grant, so that no request waits for it.
    let mut contention = std::pin::pin!(watch_for_contention(slot, attempt));
    let mut watching = true;
    let mut over = false;
    loop {
        let told = |ended: TenureEnd| {
            live.metrics.record_tenure_dispatches(ended.dispatches);
            live.metrics.record_tenure_end(ended.cause);
            if ended.known {
                attempt.mark_request_outcomes_known();
            }
        };
        if slot.end_tenure_if_due(told) {
            return;
        }
        let rest = match slot.next_action() {
            TenureDecision::Keep(rest) => rest,
            TenureDecision::End => continue,
        };
        tokio::select! {
            () = &mut contention, if watching => watching = false,
            () = slot.wait_changed() => {}
            () = live.ended.cancelled(), if !over => {
                over = true;
                slot.close(TenureEndCause::Session);
                slot.report_queue_position_lost();
            }
            () = sleep(rest) => slot.start_waiting_requests(),
        }
    }
}

/// Reports to the slot when a remote contender waits, or when the lock node of this gateway is gone; after the latter
/// it returns.
async fn watch_for_contention<L: ZkClient>(slot: &Arc<KeySlot>, attempt: &LockAttempt<L>) {
    let candidate = &attempt.candidate;
    loop {
        let (children, changed) =
            match Box::pin(candidate.live.client.watch_children(&candidate.parent)).await {
                Ok(watched) => watched,
                Err(ZkError::Ambiguous(_)) => match candidate.pause_before_retry().await {
                    Ok(()) => continue,
                    Err(_over) => return,
                },
                Err(ZkError::NoNode) => return handle_node_removed(slot),
                Err(ZkError::SessionEnded) => return,
                // The server refused the watch. Until it is set, contenders and the loss of the node go unseen.
                Err(fault) => {
                    debug!(%fault, key = key_redaction::redact_key(&slot.key), "contention is not watched");
                    sleep(REFUSED_PAUSE).await;
                    continue;
                }
            };
        candidate.record_children(&children);
        failpoint::pass("while_watching");
        let ours = candidate.layout.nodes_with_guid(&children, candidate.guid).first().map(|own| {
            (
                candidate.layout.is_contended(&children, own),
                candidate.layout.has_only_own_writers(&children, own),
            )
        });
        // A cached key must not keep the names of other nodes in memory.
        drop(children);
        match ours {
            None => return handle_node_removed(slot),
            Some((true, may_only_look)) => {
                slot.mark_contended(may_only_look);
                slot.start_waiting_requests();
            }
            Some((false, _)) => slot.clear_contended(),
        }
        changed.await;
    }
}

fn handle_node_removed(slot: &Arc<KeySlot>) {
    // The node is marked before the log line, so that a request that is made after the line gets a new tenure.
    slot.mark_node_removed();
    warn!(key = key_redaction::redact_key(&slot.key), "another client removed the lock node of this gateway");
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_zookeeper::session::{instrumented::InstrumentedZk, zookeeper::ZkSession};

    type ThreeArgFn<A, B, C, F> = fn(A, B, C) -> F;

    fn future_size<A, B, C, F>(_: ThreeArgFn<A, B, C, F>) -> usize {
        size_of::<F>()
    }

    /// An idle cached key takes few bytes, apart from its name and the client library's part of its watch. The bounds
    /// allow for failpoints.
    #[test]
    fn idle_cached_key_is_small() {
        type RealClient = InstrumentedZk<ZkSession>;
        let task = future_size(run_key_task::<RealClient> as ThreeArgFn<_, _, _, _>);
        let slot = size_of::<KeySlot>();
        let attempt = size_of::<LockAttempt<RealClient>>();
        assert!(task <= 1024 && slot <= 400 && attempt <= 256, "{task}, {slot}, {attempt}");
    }
}
