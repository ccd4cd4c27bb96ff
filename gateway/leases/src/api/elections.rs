//! Elections. The candidates are leases of one key, and the lease that holds the key is the leader.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, Method, StatusCode},
    response::{IntoResponse, Response, sse::Event},
};
use fencegate_lock::manager::admin_query::LockQueueEntry;
use fencegate_policies::key::ResourceKey;
use fencegate_protocol::{
    lease_documents::{ElectionDocument, ElectionLeader, election_key},
    path_segment::encode_path_segment,
};
use fencegate_refusal::{Refusal, RefusalReason};
use fencegate_zookeeper::session::paths::ZkPaths;
use futures_util::stream;
use tokio::{sync::watch, time::sleep};

use super::{
    client::invalid_key,
    context::{LeaseApiState, LeaseCaller, PREFIX, json_response},
    key_queue::{query_refusal, token_number},
    watch::{sse, wants_stream},
};
use crate::{
    election_watch::ElectionState,
    lease::{Lease, LeaseStageSnapshot},
    peer_client::PeerRequest,
};

/// How often ZooKeeper is queried for the leader while an election has followers. No change is reported otherwise:
/// the leader may be a lease of any gateway, or another program.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The least time between two queries on average, over all elections: the more elections are followed, the less often
/// each is queried.
const MIN_POLL_SPACING: Duration = Duration::from_millis(20);

pub(super) async fn show(
    State(interface): State<LeaseApiState>,
    Extension(caller): Extension<LeaseCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let key = parse_key(&name)?;
    if caller.sent_on {
        return Ok(json_response(&interface.local_state(&name, &key)));
    }
    let principal = caller.require_viewer(&key)?;
    if wants_stream(&headers) {
        return stream_election(interface, &principal.name, name, key);
    }
    interface.election(&name, &key).await.map(|document| json_response(&document))
}

/// Answers whether this gateway has the leader: 200 if it does, a refusal if it does not. The answer contains
/// nothing else, because it is for load balancers, which have no credentials.
pub(super) async fn check_leader(
    State(interface): State<LeaseApiState>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let proven = |lease: Arc<Lease>| matches!(lease.snapshot().stage, LeaseStageSnapshot::Held { held_for, .. } if !held_for.is_zero());
    match interface.leases.holder(&parse_key(&name)?) {
        Some(lease) if proven(lease.clone()) => Ok(StatusCode::OK.into_response()),
        _ => Err(Refusal::new(RefusalReason::NoRoute, "the leader is none of this gateway")),
    }
}

fn parse_key(name: &str) -> Result<ResourceKey, Refusal> {
    election_key(name).map_err(|bad| invalid_key(&bad))
}

/// Reports each new leader.
fn stream_election(
    interface: LeaseApiState,
    principal: &Arc<str>,
    name: String,
    key: ResourceKey,
) -> Result<Response, Refusal> {
    let drain = interface.leases.drain().clone();
    let elections = interface.leases.elections.clone();
    let most = interface.leases.settings().bounds.as_ref().map_or(0, |bounds| bounds.per_principal);
    let seen = elections.subscribe(&name.clone(), principal, most, |sender| {
        drop(tokio::spawn(interface.watch_election(name, key, sender)));
    });
    let seen = seen.ok_or_else(|| {
        Refusal::new(RefusalReason::LeaseLimit, format!("`{principal}` follows as many elections as it may"))
            .with_advice("Too many followers of elections for this principal.")
    })?;
    let events = stream::unfold((seen, drain), async |(mut seen, drain)| {
        tokio::select! {
            state = seen.next() => Some((Ok(to_event(&state?)), (seen, drain))),
            () = drain.cancelled() => None,
        }
    });
    Ok(sse(events))
}

fn to_event(election: &ElectionDocument) -> Event {
    let text = serde_json::to_string(election).expect("plain fields serialise");
    Event::default().event("election").data(text)
}

impl LeaseApiState {
    /// Watches an election as long as it has followers, and reports each new leader.
    pub(super) async fn watch_election(
        self,
        name: String,
        key: ResourceKey,
        sender: Arc<watch::Sender<ElectionState>>,
    ) {
        while !sender.is_closed() && !self.leases.drain().is_cancelled() {
            // If no gateway can be queried, the last report remains.
            if let Ok(document) = self.election(&name, &key).await {
                sender.send_if_modified(|seen| seen.replace_if_newer(document));
            }
            let followed = u32::try_from(self.leases.elections.watched_election_count()).unwrap_or(u32::MAX);
            tokio::select! {
                () = sleep(POLL_INTERVAL.max(MIN_POLL_SPACING.saturating_mul(followed))) => {}
                () = sender.closed() => {}
                () = self.leases.drain().cancelled() => {}
            }
        }
    }

    /// The state of an election. ZooKeeper has the node that holds the key, and the gateway of the holder
    /// describes the leader.
    async fn election(&self, name: &str, key: &ResourceKey) -> Result<ElectionDocument, Refusal> {
        let here = self.local_state(name, key);
        let line = self.leases.context.locks.queue_entries(key, self.leases.effective_site(key)).await;
        let line = line.map_err(query_refusal)?;
        let holds = line.iter().find(|entry| entry.holds);
        let waiting = line.len().saturating_sub(1);
        let leader = match holds {
            None => None,
            Some(entry) if here.leader.as_ref().is_some_and(|leader| leader.number == entry.number) => {
                here.leader
            }
            Some(entry) => Some(self.remote_leader(name, entry).await),
        };
        Ok(ElectionDocument { leader, waiting, ..here })
    }

    /// The holder as its gateway describes it; for a program without a gateway, the data in ZooKeeper.
    async fn remote_leader(&self, name: &str, entry: &LockQueueEntry) -> ElectionLeader {
        let plain = ElectionLeader {
            gateway: entry.gateway.clone(),
            number: entry.number,
            token: None,
            reference: None,
            note: None,
        };
        let Some(gateway) = &entry.gateway else { return plain };
        let Ok(session) = u64::from_str_radix(&entry.session, 16) else { return plain };
        let question = PeerRequest {
            method: Method::GET,
            path: format!("{PREFIX}elections/{}", encode_path_segment(name)),
            lease: None,
            body: Bytes::new(),
            patience: Duration::ZERO,
            client: None,
        };
        let result = self.ask_peer(ZkPaths::member_name(gateway, session.cast_signed()), question).await;
        let Ok(response) = result else { return plain };
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
        let election: Option<ElectionDocument> = serde_json::from_slice(&body).ok();
        election
            .and_then(|election| election.leader)
            .filter(|leader| leader.number == entry.number)
            .unwrap_or(plain)
    }

    /// The leader, if this gateway holds the lease.
    fn local_state(&self, name: &str, key: &ResourceKey) -> ElectionDocument {
        let leader = self.leases.holder(key).and_then(|lease| self.leader(&lease));
        ElectionDocument { name: name.to_owned(), key: key.as_str().to_owned(), leader, waiting: 0 }
    }

    fn leader(&self, lease: &Lease) -> Option<ElectionLeader> {
        let LeaseStageSnapshot::Held { lock, .. } = lease.snapshot().stage else { return None };
        Some(ElectionLeader {
            gateway: Some(self.leases.context.gateway.to_string()),
            number: token_number(lease),
            token: Some(lock.token()),
            reference: Some(lease.id.reference().to_string()),
            note: lease.note.as_deref().map(str::to_owned),
        })
    }
}
