//! Checks whether the endpoints of an upstream can be reached as a request would reach them, and whether each guard
//! announces itself as one.

use std::{
    collections::HashSet,
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use fencegate_guard::identity::{ANNOUNCEMENT, GuardIdentityResponse};
use fencegate_http::network::{ConnectTarget, Network, sockets::OsNetwork};
use fencegate_http_client::{
    http1::Http1Connection,
    upstream::{client_connection::HTTP2, pool::alpn_protocols, tls::UpstreamTlsConnector},
};
use fencegate_policies::{
    diagnostics::{Diagnostic, DiagnosticCode, Severity},
    plan::{FencingLevel, Upstream, UpstreamProtocol, host_header},
};
use fencegate_process::{command_hint, display::error_chain, pem::not_after};
use fencegate_protocol::intermediary;
use fencegate_zookeeper::installation::InstallationMeta;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Method, Request, Response, StatusCode, client::conn::http2, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};

use super::{clock_difference::ClockDifference, files, findings::FindingCollector};

/// The longest time for one address, whatever the policy allows a request.
const LONGEST: Duration = Duration::from_secs(5);

/// The most bytes of a response.
const LONGEST_ANSWER: usize = 16 << 10;

/// `Date` has whole seconds (RFC 9110, 5.6.7), so it may be behind its clock by this much.
const DATE_RESOLUTION: Duration = Duration::from_secs(1);

/// A guard that has announced itself, and its address.
pub(super) struct ProbedGuard {
    endpoint: usize,
    address: ConnectTarget,
    announcement: GuardIdentityResponse,
    clock: Option<ClockDifference>,
}

/// The process that is expected at the endpoints of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedEndpointRole {
    /// A guard, which has to announce itself.
    Guard,
    /// The service, with no intermediary before it that repeats requests or answers for it.
    Service,
    /// A service that compares tokens. Intermediaries before it do not matter.
    ComparingService,
}

/// Checks the upstream of a gateway. Returns the guards that answered.
pub(super) async fn check_gateway_upstream(
    findings: &FindingCollector,
    upstream: &Upstream,
) -> Vec<ProbedGuard> {
    let expected = match upstream.fencing {
        FencingLevel::Guard => ExpectedEndpointRole::Guard,
        FencingLevel::None | FencingLevel::Delay(_) => ExpectedEndpointRole::Service,
        FencingLevel::Upstream => ExpectedEndpointRole::ComparingService,
    };
    check_upstream(findings, upstream, expected, &["upstreams", &upstream.name], "endpoints").await
}

/// Checks the service behind a guard.
pub(super) async fn check_guard_upstream(findings: &FindingCollector, upstream: &Upstream) {
    check_upstream(findings, upstream, ExpectedEndpointRole::Service, &["upstream"], "endpoints").await;
}

async fn check_upstream(
    findings: &FindingCollector,
    upstream: &Upstream,
    expected: ExpectedEndpointRole,
    way: &[&str],
    list: &str,
) -> Vec<ProbedGuard> {
    let secured = match upstream.tls.as_ref().map(UpstreamTlsConnector::open).transpose() {
        Ok(secured) => secured,
        Err(bad) => {
            files::report_unusable(findings, &[way, &["tls"]].concat(), &error_chain(&bad));
            return Vec::new();
        }
    };
    let visits = upstream.endpoints.iter().enumerate().map(|(number, endpoint)| {
        let secured = secured.as_ref();
        async move { (number, endpoint, probe_endpoint(upstream, expected, endpoint, secured).await) }
    });
    let mut met = Vec::new();
    let mut missed = Vec::new();
    let mut reached = false;
    for (number, endpoint, visited) in join_all(visits).await {
        let item = number.to_string();
        let way = [way, &[list, &item]].concat();
        for seen in visited {
            match seen {
                Ok(ProbedAddress {
                    address,
                    until,
                    met: EndpointProbeResult { announcement, hop, clock },
                }) => {
                    reached = true;
                    let said = format!("{} answers at {address}", upstream.endpoint_with_scheme(endpoint));
                    findings.record(format!("upstream {}", upstream.name), said);
                    if let Some(shown) = hop {
                        findings.record(
                            format!("upstream {}", upstream.name),
                            format!("an intermediary answers at {address} ({shown}): it must not repeat requests, see `A proxy before the service`"),
                        );
                    }
                    files::check_certificate_expiry(findings, &way, &format!("of {endpoint}"), until);
                    met.extend(announcement.map(|announcement| ProbedGuard {
                        endpoint: number,
                        address,
                        announcement,
                        clock,
                    }));
                }
                Err(missing) => missed.push((item.clone(), missing)),
            }
        }
    }
    for (item, mut missing) in missed {
        // Requests can use another endpoint, so this is only a warning.
        if reached && missing.code == DiagnosticCode::NoEndpoint {
            missing.severity = Severity::Warning;
        }
        findings.report(&[way, &[list, &item]].concat(), missing);
    }
    met
}

/// One address of an endpoint that can be used.
struct ProbedAddress {
    address: ConnectTarget,
    /// When its certificate expires, in seconds since 1970.
    until: Option<u64>,
    met: EndpointProbeResult,
}

/// The process that answered at an address.
#[derive(Default)]
struct EndpointProbeResult {
    announcement: Option<GuardIdentityResponse>,
    /// Evidence of an intermediary before the service.
    hop: Option<String>,
    clock: Option<ClockDifference>,
}

/// Checks every address of an endpoint.
async fn probe_endpoint(
    upstream: &Upstream,
    expected: ExpectedEndpointRole,
    endpoint: &Arc<str>,
    secured: Option<&UpstreamTlsConnector>,
) -> Vec<Result<ProbedAddress, Diagnostic>> {
    let limit = upstream.connect_timeout.min(LONGEST);
    let resolved = timeout(limit, resolve(endpoint)).await;
    let resolved = resolved.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let unknown = |why: &str| {
        let message = format!("the endpoint {endpoint} of `{}` is not found: {why}", upstream.name);
        let remedy = "see that the name is spelled as the name server knows it, from this machine";
        vec![Err(Diagnostic::new(DiagnosticCode::NoEndpoint, message).with_remedy(remedy))]
    };
    match resolved {
        Err(error) => unknown(&error.to_string()),
        Ok(addresses) if addresses.is_empty() => unknown("its name has no address"),
        Ok(addresses) => {
            let mut addresses = addresses;
            addresses.sort_unstable();
            addresses.dedup();
            let reached = addresses
                .into_iter()
                .map(|address| probe_address(upstream, expected, endpoint, address, secured));
            join_all(reached).await
        }
    }
}

/// The addresses of an endpoint, found without connecting.
pub(super) async fn resolve(endpoint: &str) -> io::Result<Vec<ConnectTarget>> {
    match ConnectTarget::parse_literal(endpoint) {
        Some(literal) => Ok(vec![literal]),
        None => OsNetwork.resolve(endpoint).await,
    }
}

async fn probe_address(
    upstream: &Upstream,
    expected: ExpectedEndpointRole,
    endpoint: &str,
    address: ConnectTarget,
    secured: Option<&UpstreamTlsConnector>,
) -> Result<ProbedAddress, Diagnostic> {
    let limit = upstream.connect_timeout.min(LONGEST);
    let late = || io::Error::from(io::ErrorKind::TimedOut);
    let dialled = timeout(limit, OsNetwork.dial(&address)).await.unwrap_or_else(|_| Err(late()));
    let stream = dialled.map_err(|error| {
        let message =
            format!("the endpoint {endpoint} of `{}` cannot be reached at {address}: {error}", upstream.name);
        let remedy = match address {
            ConnectTarget::Tcp(_) => "start the service, or correct address and port",
            ConnectTarget::Unix(_) => {
                "start the service, correct the path, or let the user that this runs as write the socket"
            }
        };
        Diagnostic::new(DiagnosticCode::NoEndpoint, message).with_remedy(remedy)
    })?;
    let Some(secured) = secured else {
        let http2 = upstream.protocol == UpstreamProtocol::Http2;
        let met = identify(upstream, expected, endpoint, &address, stream, http2).await?;
        return Ok(ProbedAddress { address, until: None, met });
    };
    let shaken = timeout(limit, secured.connect(endpoint, stream, alpn_protocols(upstream.protocol))).await;
    let (stream, _) =
        shaken.unwrap_or_else(|_| Err(late())).map_err(|error| tls_diagnostic(upstream, endpoint, &error))?;
    let session = stream.get_ref().1;
    let until = session.peer_certificates().and_then(|chain| not_after(chain.first()?));
    let http2 = session.alpn_protocol() == Some(HTTP2.as_bytes());
    let met = identify(upstream, expected, endpoint, &address, stream, http2).await?;
    Ok(ProbedAddress { address, until, met })
}

fn tls_diagnostic(upstream: &Upstream, endpoint: &str, error: &io::Error) -> Diagnostic {
    let message = format!("TLS with {endpoint} of `{}` fails: {}", upstream.name, error_chain(error));
    let remedy =
        "write `tls: {ca_file: ...}` with who signed its certificate, or `server_name` as it stands in there";
    Diagnostic::new(DiagnosticCode::EndpointTls, message).with_remedy(remedy)
}

/// Requests the identity of the process at the address.
async fn identify<S>(
    upstream: &Upstream,
    expected: ExpectedEndpointRole,
    endpoint: &str,
    address: &ConnectTarget,
    stream: S,
    http2: bool,
) -> Result<EndpointProbeResult, Diagnostic>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match expected {
        ExpectedEndpointRole::Guard => {}
        ExpectedEndpointRole::ComparingService => return Ok(EndpointProbeResult::default()),
        ExpectedEndpointRole::Service => {
            let path = upstream.sharing.health.as_ref().map_or("/", |health| &health.path);
            let probe = send_request(Method::HEAD, path, endpoint, stream, http2, upstream.scheme());
            // A service need not answer this, and the content of its response does not matter.
            let answer = timeout(LONGEST, probe).await.ok().and_then(Result::ok);
            let hop = answer.and_then(|answer| intermediary::find_intermediary_field(answer.headers()));
            return Ok(EndpointProbeResult { hop, ..EndpointProbeResult::default() });
        }
    }
    let fetched = timeout(LONGEST, fetch_announcement(endpoint, stream, http2, upstream.scheme())).await;
    match fetched.unwrap_or_else(|_| Err("no answer in time".into())) {
        Ok((announcement, clock)) => {
            Ok(EndpointProbeResult { announcement: Some(announcement), hop: None, clock })
        }
        Err(error) => {
            let message = format!("what answers for `{}` at {address} is no guard: {error}", upstream.name);
            let remedy = "start `fencegate guard` there, in front of the service, and let nothing else reach the service";
            Err(Diagnostic::new(DiagnosticCode::NoGuard, message).with_remedy(remedy))
        }
    }
}

async fn fetch_announcement<S>(
    endpoint: &str,
    stream: S,
    http2: bool,
    scheme: &str,
) -> Result<(GuardIdentityResponse, Option<ClockDifference>), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let before = SystemTime::now();
    let answer = send_request(Method::GET, ANNOUNCEMENT, endpoint, stream, http2, scheme).await?;
    let date = answer.headers().get(header::DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let after = SystemTime::now();
    let clock =
        date.and_then(|date| ClockDifference::from_remote_reading(date, DATE_RESOLUTION, before, after));
    if answer.status() != StatusCode::OK {
        return Err(format!("it answers {} with {}", ANNOUNCEMENT, answer.status().as_u16()));
    }
    let announcement = serde_json::from_slice(answer.body()).map_err(|error| error.to_string())?;
    Ok((announcement, clock))
}

/// One request without a body. The body of the response is read if the status is 200.
async fn send_request<S>(
    method: Method,
    path: &str,
    endpoint: &str,
    stream: S,
    http2: bool,
    scheme: &str,
) -> Result<Response<Bytes>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let describe = |error: hyper::Error| error_chain(&error);
    let host = host_header(endpoint);
    let uri = if http2 { format!("{scheme}://{host}{path}") } else { path.to_owned() };
    let question = Request::builder().method(method).uri(uri).header(header::HOST, host);
    let question = question.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    if http2 {
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(describe)?;
        tokio::spawn(connection);
        let (head, body) = sender.send_request(question).await.map_err(describe)?.into_parts();
        let body = match head.status {
            StatusCode::OK => Limited::new(body, LONGEST_ANSWER).collect().await.map(|body| body.to_bytes()),
            _ => Ok(Bytes::new()),
        };
        Ok(Response::from_parts(head, body.map_err(|error| error.to_string())?))
    } else {
        let mut connection = Http1Connection::handshake(stream).await.map_err(describe)?;
        let (head, body) = connection.send(question).await.map_err(describe)?.into_parts();
        let body = match head.status {
            StatusCode::OK => connection.read_body(body, LONGEST_ANSWER).await,
            _ => Ok(Bytes::new()),
        };
        Ok(Response::from_parts(head, body.map_err(|error| error.to_string())?))
    }
}

/// Checks whether the guards of one upstream can be trusted with the tokens of this installation.
pub(super) fn check_guards(
    findings: &FindingCollector,
    upstream: &Upstream,
    met: &[ProbedGuard],
    installation: Option<&InstallationMeta>,
) {
    for ProbedGuard { endpoint, address, announcement, clock } in met {
        let number = endpoint.to_string();
        let way = ["upstreams", &*upstream.name, "endpoints", &*number];
        let longest = announcement.max_response_time();
        findings.record(
            format!("upstream {}", upstream.name),
            format!(
                "the guard at {address} settles and executes within {longest:?}, {} {}",
                if announcement.shared.is_some() { "shared store" } else { "store" },
                announcement.store
            ),
        );
        if upstream.response_timeout <= longest {
            let message = format!(
                "`response_timeout` of {:?} is not above the {longest:?} that the guard at {address} may take",
                upstream.response_timeout
            );
            let way = ["upstreams", &*upstream.name, "response_timeout"];
            let remedy = "make it longer than the guard's `settle` and `max_execution` together; nothing is sent before";
            findings.report_problem(&way, DiagnosticCode::GuardImpatient, message, remedy);
        }
        if let Some(meta) = installation
            && meta.uuid != announcement.ensemble
        {
            let message = format!(
                "the guard at {address} compares tokens of installation {}, and ZooKeeper has {}",
                announcement.ensemble, meta.uuid
            );
            let show = command_hint::command_line(command_hint::CommandHintTarget::Gateway, "era show");
            let remedy = &format!("make its store for this installation: `{show}` prints how");
            findings.report_problem(&way, DiagnosticCode::NoGuard, message, remedy);
        }
        if let Some(difference) = clock {
            let message = format!(
                "the clock of the guard at {address} is {difference}: where it differs so from that of a gateway, requests are \
                 refused as too late, and tickets as invalid"
            );
            findings.report_problem(&way, DiagnosticCode::ClocksDiffer, message, ClockDifference::REMEDY);
        }
        if announcement.observes {
            let message = format!("the guard at {address} only observes: it refuses nothing");
            findings.report_problem(
                &way,
                DiagnosticCode::Observed,
                message,
                "write `enforce: refuse` in its file",
            );
        }
    }
    check_guard_stores(findings, upstream, met);
}

/// Checks whether each guard has the admissions of the others.
fn check_guard_stores(findings: &FindingCollector, upstream: &Upstream, met: &[ProbedGuard]) {
    let different = |differ: fn(&GuardIdentityResponse, &GuardIdentityResponse) -> bool| {
        met.windows(2).any(|pair| differ(&pair[0].announcement, &pair[1].announcement))
    };
    let name = &upstream.name;
    let (message, remedy) = if different(|one, other| one.store != other.store) {
        (
            format!("the guards of `{name}` have different stores: what one lets in, the others do not know"),
            "put one guard before all instances of the service, or give all of them one `store: {postgres: ...}`",
        )
    } else if different(|one, other| one.shared != other.shared) {
        (
            format!("the guards of `{name}` have one store in two databases: one is a copy of the other"),
            "end the guards of all but one database, and give those guards the database that is left",
        )
    } else if different(|one, other| one.shared.is_none() && one.instance != other.instance) {
        (
            format!(
                "the guards of `{name}` have copies of one file: what one lets in, the others do not know"
            ),
            "end all but one of them, or give all of them one `store: {postgres: ...}`",
        )
    } else {
        if different(|one, other| one.instance != other.instance) {
            findings
                .record(format!("upstream {name}"), format!("{} guards share one store", guard_count(met)));
        }
        return;
    };
    findings.report_problem(&["upstreams", &**name, "endpoints"], DiagnosticCode::NoGuard, message, remedy);
}

fn guard_count(met: &[ProbedGuard]) -> usize {
    let processes: HashSet<&str> = met.iter().map(|met| &*met.announcement.instance).collect();
    processes.len()
}
