//! The guards, the gateways and the protocol of the clients, as a case and its level require.

use std::{
    any::Any,
    fs::{self, Permissions},
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
};

use fencegate_testkit::{fault_proxy::FaultProxy, postgres::fresh_database, scratch, terminator::TestCa};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::{
    client_protocol::ProtocolConfig,
    gateway_node::{ADMIN_TOKEN, GatewayNode},
    level::{MAX_EXECUTION, RESPONSE, TestedFencingLevel},
    service_relay::ServiceRelay,
    setup::{CaseSetup, ClientProtocol, ForwardMode, GuardSetup, HopSetup, NetworkSetup, OperationStore},
    workload::WorkloadKind,
};
use crate::{
    client::TestTlsClient,
    ensemble::{Ensemble, SERVERS, free_ports},
    guard::{Guard, GuardLaunch},
    guarded::{GuardedSite, run_operator},
    leases::LeaseTokens,
    namespaces::NetworkNamespaces,
    policy::TestPolicy,
    shared_database::SharedDatabase,
    stepped_clock::SteppedClock,
    zookeeper_proxy::ZooKeeperProxy,
};

/// Values that have to live as long as a run.
pub(super) type RunResources = Vec<Box<dyn Any + Send + Sync>>;

/// The site, the servers and the namespaces of a run.
pub(super) struct RunContext<'a> {
    pub(super) guarded: &'a GuardedSite,
    pub(super) ensemble: &'a Ensemble,
    /// The network namespaces of the gateways, if each has one.
    pub(super) namespaces: Option<&'a NetworkNamespaces>,
}

impl RunContext<'_> {
    /// The address of this machine at which gateways reach each other.
    fn machine(&self) -> Ipv4Addr {
        self.namespaces.map_or(Ipv4Addr::LOCALHOST, NetworkNamespaces::machine)
    }

    /// The address of a gateway.
    fn address(&self, number: usize) -> Ipv4Addr {
        self.namespaces.map_or(Ipv4Addr::LOCALHOST, |namespaces| namespaces.address(number))
    }

    /// Makes gateways start in their namespaces, if there are any, and makes their admin listeners reachable there.
    pub(super) fn enter_namespaces(&self, stations: &mut [GatewayNode], kept: &mut RunResources) {
        let Some(namespaces) = self.namespaces else { return };
        let folder = scratch::temp_dir();
        let file = folder.path().join("token");
        fs::write(&file, ADMIN_TOKEN).expect("our own folder");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("our own file");
        for (number, station) in stations.iter_mut().enumerate() {
            let admin = json!({
                "address": SocketAddr::from((self.address(number), 0)).to_string(),
                "auth": {"bearer_file": file.display().to_string()},
            });
            station.policy = station.policy.clone().with("/admin", admin);
            station.within = Some(namespaces.command(number));
        }
        kept.push(Box::new(folder));
    }
}

/// The guards at level `guard`. The list is empty at other levels.
pub(super) async fn guards(
    apparatus: &CaseSetup,
    level: TestedFencingLevel,
    place: &RunContext<'_>,
    tickets: Option<&Value>,
    relayed: &mut Vec<ServiceRelay>,
    kept: &mut RunResources,
) -> Vec<Guard> {
    if level != TestedFencingLevel::Guard {
        return Vec::new();
    }
    let mut guards = Vec::new();
    for launch in launches(apparatus.guards, place.guarded, kept).await {
        let launch = match place.namespaces {
            Some(_) => {
                let address = SocketAddr::from((place.machine(), free_ports(1)[0]));
                launch.with("/listener/address", address.to_string())
            }
            None => launch,
        };
        let launch = match tickets {
            Some(tickets) => launch.with("/tickets", tickets.clone()),
            None => launch,
        };
        let door = place.guarded.site.origin.open_listener("guard");
        let launch = match ServiceRelay::start_before(door, apparatus.hops).await {
            Some(service) => {
                let launch = launch.with("/upstream/endpoint", format!("http://{}", service.address()));
                relayed.push(service);
                launch.with("/upstream/not_after", not_after_setting(apparatus.hops))
            }
            None => launch,
        };
        guards.push(with_short_times(launch).start().await);
    }
    guards
}

async fn launches(guards: GuardSetup, guarded: &GuardedSite, kept: &mut RunResources) -> Vec<GuardLaunch> {
    match guards {
        GuardSetup::One => vec![guarded.launch().await],
        GuardSetup::TwoSharing => {
            let database = spawn_blocking(fresh_database).await.expect("no panic");
            let sharing = SharedDatabase::new(&database.url());
            let launches = guarded.launch_pair(&sharing).await;
            kept.push(Box::new(sharing));
            launches.into()
        }
    }
}

fn with_short_times(launch: GuardLaunch) -> GuardLaunch {
    launch
        .with("/upstream/response_timeout", format!("{}s", RESPONSE.as_secs()))
        .with("/send_within", "1s")
        .with("/max_execution", format!("{}s", MAX_EXECUTION.as_secs()))
        .with("/settle", "5s")
}

/// The setting of the key with which gateways sign tickets for guards, if the case is about clocks.
pub(super) async fn tickets(apparatus: &CaseSetup, kept: &mut RunResources) -> Option<Value> {
    if !apparatus.clocks {
        return None;
    }
    let folder = scratch::temp_dir();
    let file = folder.path().join("secret").display().to_string();
    run_operator(&["keys", "new", &file, "--hs256"]).await;
    kept.push(Box::new(folder));
    Some(json!({"secret_file": file}))
}

/// The `not_after` of the filter's client: whether it may rely on a filter.
fn not_after_setting(hops: HopSetup) -> &'static str {
    match hops {
        HopSetup::Nothing | HopSetup::Relay => "ignored",
        HopSetup::Filter | HopSetup::ObservingFilter => "enforced",
    }
}

/// The configuration of the n-th gateway, which is not started yet.
pub(super) async fn create_gateway_node(
    apparatus: &CaseSetup,
    level: TestedFencingLevel,
    place: &RunContext<'_>,
    guards: &[Guard],
    tickets: Option<&Value>,
    number: usize,
    relayed: &mut Vec<ServiceRelay>,
) -> GatewayNode {
    let RunContext { guarded, ensemble, .. } = *place;
    let name = format!("gw-{}", number + 1);
    let ports = free_ports(2);
    let address = SocketAddr::from((place.address(number), ports[0]));
    // Only the first gateway has accidents, so only its connections can be cut.
    let ways = if number == 0 { apparatus.ways } else { NetworkSetup::Direct };
    let mut links = Vec::new();
    if ways == NetworkSetup::CutToZooKeeper {
        for server in 0..SERVERS {
            links.push(ZooKeeperProxy::start(ensemble.address(server)).await);
        }
    }
    let mut endpoints: Vec<SocketAddr> = guards.iter().map(|guard| guard.public).collect();
    if endpoints.is_empty() {
        let door = guarded.site.origin.open_listener_at(&name, (place.machine(), 0).into());
        let service = ServiceRelay::start_before(door, apparatus.hops).await;
        endpoints.push(service.as_ref().map_or(door, ServiceRelay::address));
        relayed.extend(service);
    }
    let mut way = None;
    if ways == NetworkSetup::CutToService {
        let severable = FaultProxy::start(endpoints[0]);
        endpoints = vec![severable.address];
        way = Some(severable);
    }
    let servers = match links.as_slice() {
        [] => ensemble.addresses(),
        links => links.iter().map(|link| link.address().to_string()).collect(),
    };
    let policy = at_level(guarded, level, &name, &endpoints)
        .with_cached_hold()
        .with("/zookeeper/servers", servers)
        .with("/zookeeper/session_timeout", format!("{}ms", apparatus.session.as_millis()))
        .with("/listeners/public/address", address.to_string())
        .with("/routes/0/fence/wait", "8s");
    let policy = match level {
        TestedFencingLevel::None | TestedFencingLevel::Delay => {
            policy.with("/upstreams/ledger/not_after", not_after_setting(apparatus.hops))
        }
        // A comparing service refuses late requests itself, and a guard has its own setting.
        TestedFencingLevel::Upstream | TestedFencingLevel::Guard => policy,
    };
    let policy = apparatus.errand.routes(policy, &once_setting(apparatus.once));
    let policy = match apparatus.requests {
        ForwardMode::Wait => policy,
        ForwardMode::Forward => forwarding(policy, ports[1]),
    };
    let policy = match tickets {
        Some(tickets) => policy.with("/tickets", tickets.clone()),
        None => policy,
    };
    let clock = (apparatus.clocks && number == 0).then(SteppedClock::start);
    GatewayNode { name, address, policy, endpoints, links, way, clock, within: None, running: None }
}

fn once_setting(once: OperationStore) -> Value {
    match once {
        OperationStore::InGuard => json!({"store": "guard"}),
        OperationStore::InZooKeeper => json!({"store": "zookeeper"}),
    }
}

fn forwarding(policy: TestPolicy, port: u16) -> TestPolicy {
    policy
        .with_linger("60s")
        .with("/peer", json!({"address": format!("127.0.0.1:{port}")}))
        .with("/routes/0/fence/forward", "holder")
}

fn at_level(
    guarded: &GuardedSite,
    level: TestedFencingLevel,
    name: &str,
    endpoints: &[SocketAddr],
) -> TestPolicy {
    let written: Vec<String> = endpoints.iter().map(|endpoint| format!("http://{endpoint}")).collect();
    let policy = match level {
        TestedFencingLevel::Guard => {
            guarded.policy(name, endpoints).with("/upstreams/ledger/response_timeout", "12s")
        }
        TestedFencingLevel::None | TestedFencingLevel::Upstream => guarded
            .site
            .policy(name)
            .with("/upstreams/ledger/endpoints", written)
            .with("/upstreams/ledger/fencing", level.name())
            .with("/upstreams/ledger/response_timeout", "5s"),
        TestedFencingLevel::Delay => guarded
            .site
            .policy(name)
            .with("/upstreams/ledger/endpoints", written)
            .with("/upstreams/ledger/fencing", level.name())
            .with("/upstreams/ledger/delay", "5s")
            .with("/upstreams/ledger/response_timeout", "5s"),
    };
    policy.with("/upstreams/ledger/connect_timeout", "500ms")
}

/// Makes gateways grant leases, if clients hold some.
pub(super) fn enable_leases(errand: WorkloadKind, stations: &mut [GatewayNode], kept: &mut RunResources) {
    if errand != WorkloadKind::PayUnderLeases {
        return;
    }
    let tokens = LeaseTokens::default();
    for station in stations {
        station.policy = tokens.grant(station.policy.clone());
    }
    kept.push(Box::new(tokens));
}

/// Configures the gateways for the protocol of the clients.
pub(super) fn client_protocol(
    speech: ClientProtocol,
    stations: &mut [GatewayNode],
    kept: &mut RunResources,
) -> ProtocolConfig {
    match speech {
        ClientProtocol::Http1 => ProtocolConfig::Http1,
        ClientProtocol::Http2 => ProtocolConfig::Http2,
        ClientProtocol::Tls => {
            let authority = TestCa::new();
            let folder = scratch::temp_dir();
            let (certificate, key) = authority.sign(&["localhost"]).write(folder.path(), "gateway");
            let shown = json!({"certificates": [{"certificate_file": certificate, "key_file": key}]});
            for station in stations {
                station.policy = station.policy.clone().with("/listeners/public/tls", shown.clone());
            }
            kept.push(Box::new(folder));
            ProtocolConfig::Tls(TestTlsClient::new(authority.roots()).with_alpn(&["http/1.1"]))
        }
    }
}
