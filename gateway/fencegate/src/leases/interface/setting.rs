//! What all questions about leases have in common: who asks, and where the lease is.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, Method, Uri},
    response::{IntoResponse, Response},
};
use fencegate_policies::plan::Principal;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    agreement::Agreement,
    headers::FENCING_LEASE,
    in_force::InForce,
    leases::{
        far_question::{Question, RemoteAnswer},
        followed::Followed,
        holdings::Leases,
        id::{LeaseId, Reference},
        lease::Lease,
        task::Task,
    },
    refusal::{Reason, Refusal},
    ticketing::Ticketing,
};

/// Where it all lies.
pub const PREFIX: &str = "/.fencegate/v1/";

/// What the interface works with.
#[derive(Clone)]
pub struct Interface {
    pub leases: Arc<Leases>,
    pub in_force: InForce,
    pub tickets: Option<Arc<Ticketing>>,
    /// Whether other gateways lock what we lock.
    pub agreement: Arc<Agreement>,
    /// The elections that somebody follows, through any worker.
    pub elections: Followed,
    pub drain: CancellationToken,
}

/// Who asks.
#[derive(Clone)]
pub struct Applicant {
    /// By what the request shows; nobody where it shows nothing that is known.
    pub principal: Option<Principal>,
    /// Another gateway has sent it here: it is sent nowhere else.
    pub sent_on: bool,
    /// On whose behalf.
    pub client: Option<IpAddr>,
}

/// A refusal becomes an answer where all of them do.
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A lease that is asked for by its id.
pub enum FoundAt {
    Here(Arc<Lease>),
    Elsewhere(LeaseId),
}

impl Interface {
    /// Where the lease of the request is held.
    ///
    /// # Errors
    /// It shows no id, or one of another lease than the path names, or of one that is not there any more.
    pub(super) fn place(
        &self,
        applicant: &Applicant,
        reference: &str,
        headers: &HeaderMap,
    ) -> Result<FoundAt, Refusal> {
        let id = shown(headers)?;
        if Reference::parse(reference) != Some(id.reference()) {
            return Err(Refusal::new(Reason::LeaseForbidden, "path and id name two leases"));
        }
        self.found(applicant, id)
    }

    /// Where the lease with this id is held.
    ///
    /// # Errors
    /// It is not there any more, or its secret is another one.
    pub fn found(&self, applicant: &Applicant, id: LeaseId) -> Result<FoundAt, Refusal> {
        if applicant.sent_on || self.leases.is_here(&id) {
            return self.leases.find(&id).map(FoundAt::Here);
        }
        Ok(FoundAt::Elsewhere(id))
    }

    /// Asks whoever has the session with this member node.
    ///
    /// # Errors
    /// Nobody answers.
    ///
    /// # Cancellation
    /// What was asked may be done all the same.
    pub(super) async fn asks(&self, member: String, question: Question) -> Result<Response, Refusal> {
        let (told, answered) = oneshot::channel();
        self.leases.give(Task::Ask { member, question, told })?;
        let stopping = |_| Refusal::new(Reason::Draining, "the gateway is stopping");
        let RemoteAnswer { status, headers, body } = answered.await.map_err(stopping)??;
        Ok((status, headers, body).into_response())
    }
}

impl Question {
    pub(super) fn to_release(id: &LeaseId) -> Self {
        let path = format!("{PREFIX}leases/{}", id.reference());
        let lease = HeaderValue::from_str(&id.reveal()).ok();
        Self {
            method: Method::DELETE,
            path,
            lease,
            body: Bytes::new(),
            patience: Duration::ZERO,
            client: None,
        }
    }

    /// The same as it came, about a lease. `uri`: below our prefix, as routes are given it.
    pub(super) fn again(method: Method, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Self {
        let below = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = format!("{PREFIX}{}", below.trim_start_matches('/'));
        let lease = headers.get(FENCING_LEASE).cloned();
        Self { method, path, lease, body, patience: Duration::ZERO, client: None }
    }
}

/// The id of the lease that a request shows.
///
/// # Errors
/// There is none, or more than one, or something else.
pub fn shown(headers: &HeaderMap) -> Result<LeaseId, Refusal> {
    let mut lines = headers.get_all(FENCING_LEASE).iter();
    let line = lines.next().ok_or_else(|| Refusal::new(Reason::LeaseRequired, "no `Fencing-Lease`"))?;
    let alone = lines.next().is_none();
    let id = line.to_str().ok().filter(|_| alone).and_then(LeaseId::parse);
    id.ok_or_else(|| Refusal::new(Reason::LeaseForbidden, "`Fencing-Lease` is no id of a lease"))
}

impl Applicant {
    /// # Errors
    /// It shows nothing that is known.
    pub fn known(&self) -> Result<&Principal, Refusal> {
        let unknown = || Refusal::new(Reason::LeaseCredentials, "neither token nor certificate is known");
        self.principal.as_ref().ok_or_else(unknown)
    }

    /// # Errors
    /// It is none.
    pub fn operator(&self) -> Result<&Principal, Refusal> {
        let known = self.known()?;
        if known.operator {
            Ok(known)
        } else {
            Err(Refusal::new(Reason::LeaseForbidden, format!("`{}` is no operator of leases", known.name)))
        }
    }
}

/// # Errors
/// The body is not what is described.
pub(super) fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|bad| Refusal::new(Reason::Malformed, format!("the body: {bad}")))
}

/// The same of a body that may be left out.
pub(super) fn read_if_any<T: DeserializeOwned + Default>(body: &Bytes) -> Result<T, Refusal> {
    if body.is_empty() { Ok(T::default()) } else { read(body) }
}

pub(super) fn json(document: &impl Serialize) -> Response {
    axum::Json(document).into_response()
}
