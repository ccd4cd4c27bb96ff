//! The source of a request: its connection, its client, and the callers or gateways that it names.

use std::{net::IpAddr, rc::Rc};

use fencegate_guard_client::callback::CallbackTicket;
use fencegate_http::{
    buffered::HeadReservation,
    connection_info::{ClientCertIdentity, ConnectionInfo},
    connection_state::informational::InformationalSender,
};
use fencegate_leases::PresentedLease;
use fencegate_peers::PeerForwardHeader;
use fencegate_policies::client_name::ClientName;
use fencegate_protocol::trace::TraceContext;
use hyper::header::HeaderValue;

use crate::via::ViaName;

/// The connection over which a request arrived, and the resources that came with it.
pub struct RequestArrival {
    pub peer: Rc<ConnectionInfo>,
    /// True if the request came over the listener for gateways.
    pub from_gateways: bool,
    /// Takes the interim responses of the upstream, for the client.
    pub interims: Option<InformationalSender>,
    /// The memory that is reserved for a large head.
    pub head: Option<HeadReservation>,
}

/// The source of a request, after its fields were read and, where necessary, verified.
pub struct RequestSource {
    pub arrival: RequestArrival,
    /// The address of the client, as far as the proxies that report it are trusted.
    pub client: IpAddr,
    /// The name that this process writes into `Via`.
    pub via: Rc<ViaName>,
    /// The number of processes that forwarded the request before this one, by `Via`.
    pub hops: u32,
    /// The header of a gateway that has forwarded the request and has proven to be a gateway.
    pub forwarded: Option<PeerForwardHeader>,
    /// The ticket of the dispatch in which the request was called, where some route may be called back.
    pub callback: Option<CallbackTicket>,
    /// The lease that the request shows, where the process grants leases.
    pub lease: Option<PresentedLease>,
}

/// The names of a request in the reports of this process and of others.
pub struct RequestTraceIds {
    pub context: TraceContext,
    /// An id of the request that its client can quote.
    pub request_id: HeaderValue,
}

impl RequestArrival {
    /// The arrival of a request of which only the connection is known.
    pub fn from_peer(peer: ConnectionInfo) -> Self {
        Self { peer: Rc::new(peer), from_gateways: false, interims: None, head: None }
    }
}

impl RequestSource {
    /// The certificate that the client has shown to this gateway. `None` for a forwarded request: the certificate of
    /// its connection is that of the gateway that has forwarded it.
    pub fn client_certificate(&self) -> Option<&ClientCertIdentity> {
        if self.forwarded.is_some() { None } else { self.arrival.peer.certificate() }
    }

    /// The client's name in its certificate, as this gateway has verified it, or the gateway that has forwarded the
    /// request.
    pub fn client_name(&self) -> Option<&ClientName> {
        match &self.forwarded {
            Some(forwarded) => forwarded.client_name.as_ref(),
            None => self.arrival.peer.client_name(),
        }
    }
}
