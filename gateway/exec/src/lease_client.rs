//! Sends requests about one lease to gateways. If a gateway does not answer, the next one is used.

use std::{fmt, io, sync::Arc, time::Duration};

use bytes::Bytes;
use fencegate_http_client::{
    json_client::{JsonClient, JsonClientError, JsonResponse},
    upstream::tls::UpstreamTls,
};
use fencegate_process::{
    clock::{BootInstant, Clock, MachineClock},
    display::error_chain,
};
use fencegate_protocol::{lease_documents::LeaseDocument, lease_id::LeaseId};
use hyper::{Method, StatusCode};
use serde_json::Value;
use tokio::{net::lookup_host, time::Instant};

/// The gateways, and the credentials of the client.
#[derive(Clone)]
pub struct GatewayEndpoints {
    pub endpoints: Vec<GatewayEndpoint>,
    /// A token, where clients are identified by tokens.
    pub bearer: Option<Vec<u8>>,
    /// The certificates that we accept, and our own.
    pub secured: Option<Arc<UpstreamTls>>,
}

/// The address of one gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayEndpoint {
    /// With the port.
    pub host: String,
    pub speaks_tls: bool,
}

/// A connection to one of the gateways.
pub(super) struct LeaseClient {
    gateways: GatewayEndpoints,
    current: usize,
    connection: Option<JsonClient>,
}

/// The name of a lease. Its id is a secret between client and gateway, and is never displayed.
#[derive(Clone)]
pub(super) struct LeaseHandle {
    pub(super) id: String,
    reference: String,
}

/// The answer of a gateway.
pub(super) enum LeaseResponse {
    /// The lease, as it was at some moment after this time, at which the request was sent.
    Lease(Box<LeaseDocument>, BootInstant),
    Refused(StatusCode, String),
    /// No result. Another attempt may succeed.
    NoAnswer(String),
}

const LEASES: &str = "/.fencegate/v1/leases";

impl LeaseClient {
    pub(super) fn new(gateways: &GatewayEndpoints) -> Self {
        Self { gateways: gateways.clone(), current: 0, connection: None }
    }

    /// `in_line`: the lease exists at once, and waits in the queue as long as it is renewed.
    pub(super) async fn request_lease(
        &mut self,
        body: &Value,
        in_line: bool,
        patience: Duration,
    ) -> LeaseResponse {
        let prefer: &[(&str, &str)] = if in_line { &[("prefer", "respond-async")] } else { &[] };
        self.send(Method::POST, LEASES, prefer, Some(body), patience).await
    }

    pub(super) async fn renew(&mut self, lease: &LeaseHandle, patience: Duration) -> LeaseResponse {
        self.send_for_lease(Method::POST, lease, "/renew", patience).await
    }

    /// Waits for a change for so many seconds.
    pub(super) async fn watch(
        &mut self,
        lease: &LeaseHandle,
        seen: u64,
        seconds: u64,
        patience: Duration,
    ) -> LeaseResponse {
        self.send_for_lease(Method::GET, lease, &format!("?watch={seconds}&seen={seen}"), patience).await
    }

    /// Sends the release to each gateway in turn until one has answered. A silent gateway does not keep the others
    /// from receiving it.
    pub(super) async fn release(&mut self, lease: &LeaseHandle, patience: Duration) {
        let late = Instant::now() + patience;
        for left in (1..=self.gateways.endpoints.len()).rev() {
            let share =
                late.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(u32::MAX);
            match self.send_for_lease(Method::DELETE, lease, "", share).await {
                LeaseResponse::NoAnswer(_) => {}
                LeaseResponse::Lease(..) | LeaseResponse::Refused(..) => return,
            }
        }
    }

    async fn send_for_lease(
        &mut self,
        method: Method,
        lease: &LeaseHandle,
        below: &str,
        patience: Duration,
    ) -> LeaseResponse {
        let path = format!("{LEASES}/{}{below}", lease.reference);
        self.send(method, &path, &[("fencing-lease", &lease.id)], None, patience).await
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        body: Option<&Value>,
        patience: Duration,
    ) -> LeaseResponse {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let sent = MachineClock.now();
        match self.exchange(method, path, fields, body, patience).await {
            Ok(answer) => {
                let response = parse_response(answer, sent);
                // This gateway has no result, for example because it cannot reach the gateway of the lease. Another
                // one may have one.
                if matches!(response, LeaseResponse::NoAnswer(_)) {
                    self.next_endpoint();
                }
                response
            }
            Err(error) => {
                let host = self.gateways.endpoints[self.current].host.clone();
                // The request may have had its effect; the next request about the lease shows that.
                self.next_endpoint();
                LeaseResponse::NoAnswer(format!("{host}: {}", error_chain(&error)))
            }
        }
    }

    fn next_endpoint(&mut self) {
        (self.connection, self.current) = (None, (self.current + 1) % self.gateways.endpoints.len());
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        body: Bytes,
        patience: Duration,
    ) -> Result<JsonResponse, JsonClientError> {
        let GatewayEndpoint { host, speaks_tls } = &self.gateways.endpoints[self.current];
        let client = match &mut self.connection {
            Some(client) => client,
            none => {
                let found = tokio::time::timeout(patience, lookup_host(host)).await;
                let found = found.map_err(|_| JsonClientError::Timeout(patience))?;
                let address = found.map_err(JsonClientError::Connect)?.next();
                let address =
                    address.ok_or_else(|| JsonClientError::Connect(io::ErrorKind::NotFound.into()))?;
                let mut client = JsonClient::new(address).with_host(host);
                if let Some(bearer) = &self.gateways.bearer {
                    client = client.with_bearer(bearer);
                }
                if let Some(secured) = self.gateways.secured.clone().filter(|_| *speaks_tls) {
                    client = client.with_tls(secured);
                }
                none.insert(client)
            }
        };
        client.request(method, path, fields, body, patience).await
    }
}

fn parse_response(answer: JsonResponse, sent: BootInstant) -> LeaseResponse {
    let JsonResponse { status, body, .. } = answer;
    if status.is_success() {
        return match serde_json::from_value(body) {
            Ok(lease) => LeaseResponse::Lease(Box::new(lease), sent),
            Err(_) => LeaseResponse::Refused(status, "what answers is no gateway with leases".to_owned()),
        };
    }
    let text = |member: &str| body[member].as_str().map(str::to_owned);
    let detail = text("detail").or_else(|| text("title")).unwrap_or_else(|| "no word of why".to_owned());
    match status {
        StatusCode::TOO_MANY_REQUESTS => LeaseResponse::NoAnswer(detail),
        _ if status.is_server_error() => LeaseResponse::NoAnswer(detail),
        _ => LeaseResponse::Refused(status, format!("{detail} ({status})")),
    }
}

impl fmt::Debug for LeaseHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reference)
    }
}

impl fmt::Debug for GatewayEndpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.endpoints).finish()
    }
}

impl LeaseHandle {
    /// `None` if the lease is not ours, or if no gateway has sent its id.
    pub(super) fn from_document(lease: &LeaseDocument) -> Option<Self> {
        let id = lease.lease.clone()?;
        let reference = LeaseId::parse(&id)?.reference().to_string();
        Some(Self { id, reference })
    }
}

impl GatewayEndpoint {
    /// `http://host:port` or `https://host:port`, without a path.
    pub fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let host = rest.strip_suffix('/').unwrap_or(rest);
        let speaks_tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let plain =
            !host.is_empty() && !host.contains(['/', '?', '#', '@']) && !host.contains(char::is_whitespace);
        let port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let usual = if speaks_tls { 443 } else { 80 };
        let host = if port { host.to_owned() } else { format!("{host}:{usual}") };
        plain.then_some(Self { host, speaks_tls })
    }
}

#[cfg(test)]
impl LeaseHandle {
    pub(super) fn example() -> Self {
        Self { id: "v1.x".to_owned(), reference: "0123456789abcdef".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway is named by an `http` or `https` URL without a path.
    #[test]
    fn gateway_url_has_no_path() {
        let endpoint = |url| GatewayEndpoint::parse(url).map(|endpoint| (endpoint.host, endpoint.speaks_tls));
        assert_eq!(endpoint("http://gw-1:8080"), Some(("gw-1:8080".to_owned(), false)));
        assert_eq!(endpoint("https://gw-1/"), Some(("gw-1:443".to_owned(), true)));
        assert_eq!(endpoint("http://[::1]:8080/"), Some(("[::1]:8080".to_owned(), false)));
        for wrong in ["gw-1:8080", "ftp://gw-1", "http://", "http://gw-1/x", "http://a@b", "http://a b"] {
            assert_eq!(endpoint(wrong), None, "{wrong}");
        }
    }

    /// An answer after which another try can succeed is distinguished from a final refusal.
    #[test]
    fn retryable_answer_differs_from_refusal() {
        let answer = |status: u16, body: Value| JsonResponse {
            status: StatusCode::from_u16(status).expect("a status"),
            outcome: None,
            token: None,
            body,
        };
        let parsed = |status| {
            parse_response(
                answer(status, serde_json::json!({"title": "t", "detail": "why"})),
                BootInstant::from_nanos(1),
            )
        };
        assert!(
            matches!(parsed(423), LeaseResponse::Refused(StatusCode::LOCKED, why) if why.contains("why"))
        );
        assert!(matches!(parsed(503), LeaseResponse::NoAnswer(why) if why == "why"));
        assert!(matches!(parsed(429), LeaseResponse::NoAnswer(_)));
        assert!(matches!(parsed(200), LeaseResponse::Refused(..)), "no lease");
    }
}
