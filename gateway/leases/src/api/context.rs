//! The common parts of all requests about leases: the caller, and the location of the lease.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, Method, Uri},
    response::{IntoResponse, Response},
};
use fencegate_guard_client::ticket_issuer::TicketIssuer;
use fencegate_policies::{key::ResourceKey, plan::LeasePrincipal};
use fencegate_protocol::{
    headers::FENCING_LEASE,
    lease_id::{LeaseId, LeaseReference},
};
use fencegate_refusal::{Refusal, RefusalReason};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::oneshot;

use crate::{
    auth::may_take,
    command::LeaseThreadCommand,
    lease::Lease,
    lease_table::LeaseTable,
    peer_client::{PeerRequest, PeerResponse},
};

/// The path below which the interface lies.
pub const PREFIX: &str = "/.fencegate/v1/";

/// The dependencies of the interface.
#[derive(Clone)]
pub struct LeaseApiState {
    pub leases: Arc<LeaseTable>,
    pub tickets: Option<Arc<TicketIssuer>>,
}

/// The caller of the interface.
#[derive(Clone)]
pub struct LeaseCaller {
    /// The principal whose credential the request presents; `None` for an unknown one.
    pub principal: Option<LeasePrincipal>,
    /// Whether a peer has forwarded the request, so that it is not forwarded again.
    pub sent_on: bool,
    /// The client that sent the request.
    pub client: Option<IpAddr>,
}

/// A lease, found by its id.
pub enum LeaseLocation {
    Local(Arc<Lease>),
    Remote(LeaseId),
}

impl LeaseApiState {
    /// Locates the lease of the request.
    ///
    /// # Errors
    /// Returns an error if the request presents no id, the id of another lease than the path, or the id of a
    /// lease that is gone.
    pub(super) fn locate_requested(
        &self,
        caller: &LeaseCaller,
        reference: &str,
        headers: &HeaderMap,
    ) -> Result<LeaseLocation, Refusal> {
        let id = lease_id(headers)?;
        if LeaseReference::parse(reference) != Some(id.reference()) {
            return Err(Refusal::new(RefusalReason::LeaseForbidden, "path and id name two leases"));
        }
        self.locate(caller, id)
    }

    /// Locates the lease with this id.
    ///
    /// # Errors
    /// Returns an error if the lease is gone, or if the secret is wrong.
    pub fn locate(&self, caller: &LeaseCaller, id: LeaseId) -> Result<LeaseLocation, Refusal> {
        if caller.sent_on || self.leases.is_local(&id) {
            return self.leases.find(&id).map(LeaseLocation::Local);
        }
        Ok(LeaseLocation::Remote(id))
    }

    /// Queries the gateway whose session has this member node.
    ///
    /// # Errors
    /// Returns an error if no gateway responds.
    ///
    /// # Cancellation
    /// If the future is dropped, the peer may execute the request all the same.
    pub(super) async fn ask_peer(&self, member: String, request: PeerRequest) -> Result<Response, Refusal> {
        let (reply, response) = oneshot::channel();
        self.leases.send(LeaseThreadCommand::AskPeer { member, request, reply })?;
        let stopping = |_| Refusal::new(RefusalReason::Draining, "the gateway is stopping");
        let PeerResponse { status, headers, body } = response.await.map_err(stopping)??;
        Ok((status, headers, body).into_response())
    }
}

impl PeerRequest {
    pub(super) fn lease_release_request(id: &LeaseId) -> Self {
        let path = format!("{PREFIX}leases/{}", id.reference());
        let lease = HeaderValue::from_str(&id.to_secret_text()).ok();
        Self {
            method: Method::DELETE,
            path,
            lease,
            body: Bytes::new(),
            patience: Duration::ZERO,
            client: None,
        }
    }

    /// The client's request about a lease, for a peer. `uri` is the path below our prefix, as the router delivers it.
    pub(super) fn from_client_request(method: Method, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Self {
        let below = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = format!("{PREFIX}{}", below.trim_start_matches('/'));
        let lease = headers.get(FENCING_LEASE).cloned();
        Self { method, path, lease, body, patience: Duration::ZERO, client: None }
    }
}

/// The id of the lease that a request presents.
///
/// # Errors
/// Returns an error if there is no id, more than one, or a malformed one.
pub fn lease_id(headers: &HeaderMap) -> Result<LeaseId, Refusal> {
    let mut lines = headers.get_all(FENCING_LEASE).iter();
    let line =
        lines.next().ok_or_else(|| Refusal::new(RefusalReason::LeaseRequired, "no `Fencing-Lease`"))?;
    let alone = lines.next().is_none();
    let id = line.to_str().ok().filter(|_| alone).and_then(LeaseId::parse);
    id.ok_or_else(|| Refusal::new(RefusalReason::LeaseForbidden, "`Fencing-Lease` is no id of a lease"))
}

impl LeaseCaller {
    /// The caller, if it may see the holder of this key: operators and principals that may take the key.
    ///
    /// # Errors
    /// Returns an error if the caller may not see the holder, or if the request presents no known credential.
    pub(super) fn require_viewer(&self, key: &ResourceKey) -> Result<&LeasePrincipal, Refusal> {
        let known = self.require_principal()?;
        if known.operator || may_take(known, std::slice::from_ref(key)) {
            Ok(known)
        } else {
            Err(Refusal::new(
                RefusalReason::LeaseForbidden,
                format!("`{}` may not take this key", known.name),
            ))
        }
    }

    /// The principal of the caller.
    ///
    /// # Errors
    /// Returns an error if the request presents no known credential.
    pub fn require_principal(&self) -> Result<&LeasePrincipal, Refusal> {
        let unknown =
            || Refusal::new(RefusalReason::LeaseCredentials, "neither token nor certificate is known");
        self.principal.as_ref().ok_or_else(unknown)
    }

    /// The principal of the caller, which has to be an operator.
    ///
    /// # Errors
    /// Returns an error if the principal is no operator.
    pub(crate) fn require_operator(&self) -> Result<&LeasePrincipal, Refusal> {
        let known = self.require_principal()?;
        if known.operator {
            Ok(known)
        } else {
            Err(Refusal::new(
                RefusalReason::LeaseForbidden,
                format!("`{}` is no operator of leases", known.name),
            ))
        }
    }
}

/// Parses the JSON body of a request.
///
/// # Errors
/// Returns an error if the body does not have the documented form.
pub(super) fn parse_body<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|bad| Refusal::new(RefusalReason::Malformed, format!("the body: {bad}")))
}

/// Parses the JSON body of a request; an empty body gives the default.
pub(super) fn parse_optional_body<T: DeserializeOwned + Default>(body: &Bytes) -> Result<T, Refusal> {
    if body.is_empty() { Ok(T::default()) } else { parse_body(body) }
}

pub(super) fn json_response(document: &impl Serialize) -> Response {
    axum::Json(document).into_response()
}
