//! The active health checks, on connections of their own: a check never waits for a request, and never holds a lock.
//! Processes with an identity are also probed, see [`ConnectionPool::probe_addresses`].

use std::{io, sync::Arc, thread, time::Duration};

use bytes::Bytes;
use fencegate_http::network::{ConnectTarget, Network};
use fencegate_policies::plan::{HealthCheck, host_header};
use fencegate_process::clock::SharedClock;
use futures_util::future::{join_all, join4, pending};
use http_body_util::Empty;
use hyper::{Request, header};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::{LocalSet, spawn_blocking},
    time::{MissedTickBehavior, interval, timeout},
};
use tracing::debug;

use super::{
    address::ResolvedEndpoint,
    client_connection::HTTP1,
    endpoint::{Endpoint, EndpointState},
    endpoint_set::{EndpointSet, UpstreamSet},
    identity_check::EndpointIdentityVerifier,
    pool::ConnectionPool,
    resolver::{self, dial},
};
use crate::http1::Http1Connection;

/// Checks the endpoints of a plan until another plan takes over. The checks have a thread of their own, because a busy
/// worker must not make endpoints look unhealthy. `turning` runs on the same thread.
pub fn start_endpoint_tasks<N: Network + Send>(
    network: N,
    upstreams: &Arc<UpstreamSet>,
    clock: SharedClock,
    identity_check: Arc<dyn EndpointIdentityVerifier>,
    turning: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tended = upstreams.clone();
    thread::Builder::new().name("endpoints".into()).spawn(move || {
        let pool = ConnectionPool::new(network.clone(), clock, identity_check);
        let tasks = LocalSet::new();
        tasks.spawn_local(turning);
        tasks.block_on(&runtime, run_endpoint_tasks(&network, &pool, &tended));
    })?;
    take_over_endpoints(upstreams);
    Ok(())
}

/// Takes the endpoints over for a new plan. Must be called when the new plan cannot fail any more: before that,
/// endpoints may belong to the plan in force.
fn take_over_endpoints(upstreams: &Arc<UpstreamSet>) {
    upstreams.publish_metrics();
    // Endpoints without checks in the new plan count as healthy, because no check could ever correct their state.
    let unchecked =
        upstreams.all().iter().filter(|endpoint_set| endpoint_set.upstream.sharing.health.is_none());
    unchecked.for_each(|endpoint_set| endpoint_set.mark_all_healthy());
}

async fn run_endpoint_tasks<N: Network>(network: &N, pool: &ConnectionPool<N>, upstreams: &UpstreamSet) {
    let files = join_all(upstreams.all().iter().map(|endpoint_set| watch_tls_files(endpoint_set.clone())));
    let all = upstreams.all().iter().filter_map(|endpoint_set| {
        let health = endpoint_set.upstream.sharing.health.as_ref()?;
        Some(join_all(
            endpoint_set
                .endpoints()
                .iter()
                .map(move |endpoint| run_endpoint_checks(network, endpoint_set, endpoint, health)),
        ))
    });
    let names = upstreams.all().iter().flat_map(|endpoint_set| {
        endpoint_set
            .endpoints()
            .iter()
            .map(move |endpoint| resolver::run_resolver(network, endpoint_set, endpoint))
    });
    let probes = upstreams.all().iter().flat_map(|endpoint_set| {
        endpoint_set.endpoints().iter().map(move |endpoint| pool.probe_addresses(endpoint_set, endpoint))
    });
    tokio::select! {
        // A plan without checks has nothing to await here, so `pending` keeps the tasks running until the end.
        _ = join4(
            async { (join_all(all).await, pending::<()>().await) },
            files,
            join_all(names),
            join_all(probes),
        ) => {}
        () = upstreams.retirement_token().cancelled() => {}
    }
}

/// Checks the TLS files of an upstream periodically, without end.
async fn watch_tls_files(endpoint_set: Arc<EndpointSet>) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let endpoint_set = endpoint_set.clone();
        // The runtime reports a panic of the check, and the next check tries again.
        drop(spawn_blocking(move || endpoint_set.reload_tls()).await);
    }
}

/// The interval of the checks of files.
const LOOK: Duration = Duration::from_secs(2);

/// Checks one endpoint periodically, without end.
async fn run_endpoint_checks<N: Network>(
    network: &N,
    endpoint_set: &EndpointSet,
    endpoint: &Endpoint,
    health: &HealthCheck,
) {
    let mut ticks = interval(health.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut run = HealthCheckStreak::initial_health_streak(endpoint);
    loop {
        ticks.tick().await;
        let good = check_endpoint(network, endpoint_set, endpoint, health).await;
        endpoint_set.metrics.record_check(&endpoint_set.upstream.name, &endpoint.name, good);
        endpoint_set.record_check(endpoint, run.record(good, health));
    }
}

/// The result of the checks so far, and the checks against it.
#[derive(Debug)]
struct HealthCheckStreak {
    well: bool,
    /// The number of checks in a row with the opposite result.
    against: usize,
}

impl HealthCheckStreak {
    /// Begins with the state that an earlier plan has found. A new endpoint counts as healthy.
    fn initial_health_streak(endpoint: &Endpoint) -> Self {
        Self { well: endpoint.state() != EndpointState::Unhealthy, against: 0 }
    }

    fn record(&mut self, good: bool, health: &HealthCheck) -> bool {
        if good == self.well {
            self.against = 0;
            return self.well;
        }
        self.against += 1;
        let enough = if good { health.healthy } else { health.unhealthy };
        if self.against >= enough {
            (self.well, self.against) = (good, 0);
        }
        self.well
    }
}

/// Probes whether the process at an endpoint runs, on a new connection for each address. With `only` it probes this
/// address and no other of the endpoint. Returns true if every probed address has given an accepted response within the
/// time limit of a check; false if the upstream has no `health`.
///
/// A kernel accepts connections for a frozen process, so only a response counts. An intermediary may answer in place of
/// the process, with a status of its own, so only a status that the policy accepts counts.
///
/// # Cancellation
/// Dropping the future closes the connections.
pub async fn probe_process<N: Network>(
    network: &N,
    endpoint_set: &EndpointSet,
    endpoint: &str,
    only: Option<&str>,
) -> bool {
    let Some(health) = &endpoint_set.upstream.sharing.health else { return false };
    let Some(endpoint) = endpoint_set.endpoints().iter().find(|one| *one.name == *endpoint) else {
        return false;
    };
    let only = only.map(ConnectTarget::parse_literal);
    let addresses = match only {
        None => timeout(health.timeout, endpoint.addresses.all()).await.unwrap_or_default(),
        Some(None) => return false,
        Some(Some(socket)) => vec![ResolvedEndpoint::new(socket, endpoint.name.clone())],
    };
    let checks =
        addresses.iter().map(|address| check_address(network, endpoint_set, endpoint, health, address));
    !addresses.is_empty() && join_all(checks).await.into_iter().all(|good| good)
}

/// Makes one check at one address.
async fn check_address<N: Network>(
    network: &N,
    endpoint_set: &EndpointSet,
    endpoint: &Endpoint,
    health: &HealthCheck,
    address: &Arc<ResolvedEndpoint>,
) -> bool {
    let checked = status(network, endpoint_set, endpoint, health, std::slice::from_ref(address));
    match timeout(health.timeout, checked).await {
        Ok(Ok(status)) => health.statuses.iter().any(|good| good.contains(&status)),
        Ok(Err(_)) | Err(_) => false,
    }
}

/// Makes one check.
async fn check_endpoint<N: Network>(
    network: &N,
    endpoint_set: &EndpointSet,
    endpoint: &Endpoint,
    health: &HealthCheck,
) -> bool {
    let exchange = async {
        let addresses = endpoint.addresses.rotated_addresses().await;
        status(network, endpoint_set, endpoint, health, &addresses).await
    };
    match timeout(health.timeout, exchange).await {
        Ok(Ok(status)) => health.statuses.iter().any(|good| good.contains(&status)),
        Ok(Err(error)) => {
            debug!(endpoint = %endpoint.name, %error, "health check failed");
            false
        }
        Err(_) => false,
    }
}

async fn status<N: Network>(
    network: &N,
    endpoint_set: &EndpointSet,
    endpoint: &Endpoint,
    health: &HealthCheck,
    addresses: &[Arc<ResolvedEndpoint>],
) -> io::Result<u16> {
    let path = &health.path;
    let stream = dial(network, addresses, health.timeout, |_| {}).await?.1;
    match &endpoint_set.tls {
        None => request_status(stream, endpoint, path).await,
        Some(secured) => {
            let (stream, _) = secured.connect(&endpoint.name, stream, &[HTTP1]).await?;
            request_status(stream, endpoint, path).await
        }
    }
}

async fn request_status<S>(stream: S, endpoint: &Endpoint, path: &str) -> io::Result<u16>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let question = Request::get(path)
        .header(header::HOST, host_header(&endpoint.name))
        .header(header::USER_AGENT, "fencegate-health")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let mut connection = Http1Connection::handshake(stream).await.map_err(io::Error::other)?;
    Ok(connection.send(question).await.map_err(io::Error::other)?.status().as_u16())
}

#[cfg(test)]
mod tests {
    use fencegate_policies::plan::PoolLimits;
    use fencegate_process::registry::MetricRegistry;
    use tokio::sync::watch;

    use super::*;
    use crate::upstream::{address::EndpointAddresses, metrics::EndpointMetrics};

    fn health() -> HealthCheck {
        HealthCheck {
            path: "/".into(),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            healthy: 2,
            unhealthy: 3,
            statuses: vec![200..=399],
        }
    }

    /// An endpoint that another plan has found unhealthy stays so until enough checks in a row succeed.
    #[test]
    fn unhealthy_endpoint_stays_across_plans() {
        let limits = PoolLimits { max_connections: 1, max_idle: 1 };
        let addresses = Arc::new(EndpointAddresses::new("a:80".into()));
        let endpoint = Endpoint::new("a:80".into(), addresses, limits, watch::Sender::new(()));
        assert!(
            HealthCheckStreak::initial_health_streak(&endpoint).record(false, &health()),
            "one bad answer is not enough"
        );
        endpoint.set_check_result(0, false);
        let mut run = HealthCheckStreak::initial_health_streak(&endpoint);
        assert!(!run.record(true, &health()), "one good answer is not enough");
        assert!(run.record(true, &health()));
    }

    /// Makes a plan with these health checks at one upstream. An empty text means no checks.
    fn plan(health: &str) -> fencegate_policies::plan::GatewayPlan {
        let text = format!(
            r#"version: 1
listeners: {{public: {{address: 127.0.0.1:8080}}}}
zookeeper: {{servers: [zk1:2181]}}
upstreams:
  open: {{endpoints: ["http://127.0.0.1:9"], fencing: upstream{health}}}
routes:
  - {{name: look, upstream: open, match: {{path: "/look"}}, fence: none}}
"#
        );
        let loaded = fencegate_policies::file::load(&text);
        loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
    }

    /// An endpoint without health checks counts as healthy once its plan is in force, and not before.
    #[test]
    fn unchecked_endpoint_recovers_with_its_plan() {
        let metrics = EndpointMetrics::register(&MetricRegistry::new());
        let before =
            UpstreamSet::new(&plan(", health: {path: /, interval: 1s}").serving, &metrics).expect("no files");
        let [endpoint_set] = before.all() else { panic!("one upstream") };
        let endpoint = endpoint_set.endpoints()[0].clone();
        endpoint_set.record_check(&endpoint, false);
        let after = before.for_next_plan(&plan("").serving, &metrics).expect("no files");
        assert_eq!(endpoint.state(), EndpointState::Unhealthy, "the plan may still be refused");
        assert!(Arc::ptr_eq(&after.all()[0].endpoints()[0], &endpoint));
        take_over_endpoints(&after);
        assert_eq!(endpoint.state(), EndpointState::Usable);
        // This is the result of a check of the old plan, which ended after the new plan took over.
        endpoint_set.record_check(&endpoint, false);
        assert_eq!(endpoint.state(), EndpointState::Usable);
    }

    /// After a plan was refused, the metrics still show the endpoints of the plan in force.
    #[test]
    fn refused_plan_keeps_endpoint_metrics() {
        const HEALTH: &str = ", health: {path: /, interval: 1s}";
        let families = MetricRegistry::new();
        let metrics = EndpointMetrics::register(&families);
        let in_force = UpstreamSet::new(&plan(HEALTH).serving, &metrics).expect("no files");
        take_over_endpoints(&in_force);
        drop(in_force.for_next_plan(&plan(HEALTH).serving, &metrics).expect("no files"));
        let endpoint_set = &in_force.all()[0];
        endpoint_set.record_check(&endpoint_set.endpoints()[0], false);
        metrics.update_gauges();
        let text = String::from_utf8(families.encode()).expect("text");
        let told = text.contains(r#"fencegate_upstream_endpoints{state="unhealthy",upstream="open"} 1"#);
        assert!(told, "what is shown is what was seen before: {text}");
    }

    /// Only enough results in a row change the health of an endpoint.
    #[test]
    fn only_streak_changes_health() {
        let health = health();
        let mut run = HealthCheckStreak { well: true, against: 0 };
        let told: Vec<bool> = [false, false, true, false, false, false, true, false, true, true]
            .map(|good| run.record(good, &health))
            .into();
        assert_eq!(told, [true, true, true, true, true, false, false, false, false, true]);
    }
}
