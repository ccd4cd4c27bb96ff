//! Bytes that a process has written and the network has not taken are never delivered once the process has ended with
//! a request at work, and not for long while it is paused.
//!
//! A guard or gateway is killed, drained too early, or told twice to end, also over HTTP/2 and TLS. An orderly end
//! resets no connection. The kernel of a guard gives up a statement to its database when the guard does.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use fencegate_process::clock::MachineClock;
use fencegate_testkit::{
    child::Signal,
    scratch,
    terminator::{ClientCertificatePolicy, TestCa, TlsTerminator},
    wait::{QUIET, wait_until},
};
use fencegate_tests::{
    client::TestRequest,
    gateway::{Gateway, GatewayLaunch},
    guard::{FLOOR, GuardFixture, GuardLaunch, StampedRequest},
    held_request::HeldRequest,
    namespaces::NetworkNamespaces,
    origin::OriginLog,
    origin_h2::OriginH2,
    policy::TestPolicy,
    process::TestProcess,
    shared_store::SharedStore,
    site::TestSite,
};
use serde_json::json;
use tokio::{io::copy_bidirectional, net::TcpStream, task::JoinHandle};

/// The time after which a guard gives up a dispatch that it could not send, if its process still runs.
const SENDS: Duration = Duration::from_secs(2);

/// The state of a connection without an answer so far, in `/proc/net/tcp` (`TCP_SYN_SENT` in the kernel's
/// `tcp_states.h`).
const SYN_SENT: &str = "02";

/// The states in which the end of a connection was sent and not acknowledged: `TCP_FIN_WAIT1`, `TCP_LAST_ACK` and
/// `TCP_CLOSING`.
const END_SENT: [&str; 3] = ["04", "09", "0B"];

/// A network path to a service on which packets can be dropped. Bytes that arrive are passed on at once.
pub(super) struct LossyPath {
    namespaces: NetworkNamespaces,
    /// The address at which a process reaches the service.
    pub(super) address: SocketAddr,
    /// Connections that the process has reset.
    resets: Arc<AtomicUsize>,
    passing: JoinHandle<()>,
}

impl LossyPath {
    /// Makes a path to the service, or returns `None` on a machine without network namespaces.
    pub(super) async fn to(service: SocketAddr) -> Option<Self> {
        let namespaces = match NetworkNamespaces::new(1).await {
            Ok(namespaces) => namespaces,
            Err(why) => {
                println!("no network namespaces here: {why}");
                return None;
            }
        };
        let listener: TcpListener = namespaces.listener(0);
        let address = listener.local_addr().expect("bound");
        listener.set_nonblocking(true).expect("our own socket");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
        let resets = Arc::<AtomicUsize>::default();
        let counted = resets.clone();
        let passing = tokio::spawn(async move {
            while let Ok((mut come, _)) = listener.accept().await {
                let counted = counted.clone();
                tokio::spawn(async move {
                    let Ok(mut on) = TcpStream::connect(service).await else { return };
                    if copy_bidirectional(&mut come, &mut on).await.is_err() {
                        counted.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        Some(Self { namespaces, address, resets, passing })
    }

    /// Drops all further packets to the service.
    pub(super) fn drop_packets(&self) {
        self.namespaces.drop_incoming(0);
    }

    pub(super) fn pass_packets(&self) {
        self.namespaces.restore();
    }

    /// The number of bytes that the kernel still tries to deliver, for running and ended processes of this machine. The
    /// first packet (SYN) and the end (FIN) of a connection do not count, because they contain no bytes of a process.
    fn undelivered_bytes(&self) -> u64 {
        let SocketAddr::V4(address) = self.address else { panic!("a namespace has an IPv4 address") };
        let remote = format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
        let connections = fs::read_to_string("/proc/net/tcp").expect("the kernel tells");
        let queues = connections.lines().filter_map(|line| {
            // The columns are a number, both ends, the state, and the queues of bytes to send and to read.
            let [_, _, to, state, queues, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                return None;
            };
            if to != remote || state == SYN_SENT {
                return None;
            }
            let queued = u64::from_str_radix(queues.split(':').next()?, 16).ok()?;
            // A FIN that was sent takes a sequence number, as a byte does (RFC 9293, 3.4), so it is subtracted.
            Some(queued.saturating_sub(u64::from(END_SENT.contains(&state))))
        });
        queues.sum()
    }

    /// Waits until some written bytes are not delivered, or until none of them is left. This is polled, because the
    /// kernel sends no event.
    pub(super) async fn wait_undelivered(&self, undelivered: bool) {
        let reached = async {
            while (self.undelivered_bytes() > 0) != undelivered {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        wait_until("the kernel to have it", reached, || self.undelivered_bytes()).await;
    }

    /// Sends a request whose packets are dropped, and ends the process. Returns the number of its bytes that are left
    /// to the kernel, which would deliver them on the restored path. Restores the path at the end.
    async fn leave_undelivered(&self, process: &TestProcess, ask: TestRequest, end: ProcessEnd) -> u64 {
        self.drop_packets();
        let lost = process.begin(ask);
        self.wait_undelivered(true).await;
        end.apply_to(process).await;
        let left = self.undelivered_bytes();
        assert!(lost.result().await.is_err(), "nobody is left to answer");
        self.pass_packets();
        self.wait_undelivered(false).await;
        left
    }
}

impl Drop for LossyPath {
    fn drop(&mut self) {
        self.passing.abort();
    }
}

/// The way in which a process ends with a request at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessEnd {
    Killed,
    /// By SIGTERM, with a drain that is shorter than the request.
    Drained,
    /// By a second SIGTERM.
    ToldTwice,
}

impl ProcessEnd {
    const ALL: [Self; 3] = [Self::Killed, Self::Drained, Self::ToldTwice];

    async fn apply_to(self, process: &TestProcess) {
        match self {
            Self::Killed => process.signal(Signal::KILL),
            Self::Drained => process.signal(Signal::TERM),
            Self::ToldTwice => {
                process.signal(Signal::TERM);
                process
                    .wait_line("the drain", |line| {
                        line.message() == "the process is draining: it takes no new requests"
                    })
                    .await;
                process.signal(Signal::TERM);
            }
        }
        process.exit().await;
    }

    fn drain(self) -> &'static str {
        if self == Self::Drained { "200ms" } else { "30s" }
    }
}

/// A guard that reaches its service over this path.
async fn guard_before(way: &LossyPath) -> GuardLaunch {
    let launch = GuardLaunch::for_upstream(way.address).init_with_floor(FLOOR).await.with_one_worker();
    launch
        .with("/send_within", format!("{}s", SENDS.as_secs()))
        .with("/upstream/response_timeout", "2s")
        .with("/max_execution", "4s")
        .with("/settle", "1s")
}

/// However a guard ends with a request at work, its kernel delivers nothing that the network had not taken.
#[tokio::test]
async fn dying_guard_discards_unsent_data() {
    let beside = GuardFixture::new().await;
    let Some(way) = LossyPath::to(beside.origin.open_listener("guard")).await else { return };
    let mut launch = guard_before(&way).await;
    let mut left = Vec::new();
    for (number, end) in (0..).zip(ProcessEnd::ALL) {
        launch = launch.with("/listener/timeouts/drain", end.drain());
        let guard = launch.start().await;
        let key = format!("key/{number}");
        let epoch = 20 + number;
        // The guard may have been killed before. Keys that were not at work at that moment have no quarantine.
        let warm = guard.send(&StampedRequest::new(&format!("{key}/warm"), epoch).post("/warm")).await;
        assert_eq!(warm.status, 200, "{warm:?}");
        left.push(
            way.leave_undelivered(&guard, StampedRequest::new(&key, epoch).post("/pay").body("old"), end)
                .await,
        );
    }
    assert_eq!(left, [0; 3], "{:?}", ProcessEnd::ALL);
    let guard = launch.start().await;
    guard.wait_ready().await;
    assert_eq!(guard.send(&StampedRequest::new("key/0", 30).post("/next")).await.status, 200);
    tokio::time::sleep(QUIET).await;
    assert_eq!((beside.origin.count("/next"), beside.origin.count("/pay")), (1, 0));
}

/// The kernel of a frozen guard gives up in time the bytes that the network has not taken.
///
/// A frozen process closes no connection itself.
#[tokio::test]
async fn kernel_drops_data_of_frozen_guard() {
    let beside = GuardFixture::new().await;
    let Some(way) = LossyPath::to(beside.origin.open_listener("guard")).await else { return };
    let guard = guard_before(&way).await.start().await;
    assert_eq!(guard.send(&StampedRequest::new("warm", 20).post("/warm")).await.status, 200);
    way.drop_packets();
    let lost = guard.begin(StampedRequest::new("key", 20).post("/pay").body("old"));
    way.wait_undelivered(true).await;
    let written = Instant::now();
    guard.signal(Signal::STOP);
    way.wait_undelivered(false).await;
    let after = written.elapsed();
    assert!(after < SENDS * 2, "it gave up after {after:?}");
    way.pass_packets();
    guard.signal(Signal::CONT);
    assert_eq!(lost.answer().await.reason(), "outcome-unknown");
    tokio::time::sleep(QUIET).await;
    assert_eq!(beside.origin.count("/pay"), 0);
}

/// Starts a gateway with one worker and a short drain, and an idle connection to its upstream.
async fn start_impatient_gateway(policy: &TestPolicy, end: ProcessEnd) -> Gateway {
    let policy = policy.clone().with("/listeners/public/timeouts/drain", end.drain());
    let gateway = GatewayLaunch::new(&policy).with_workers(1).start().await;
    gateway.wait_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/warm")).await.status, 200);
    gateway
}

/// A gateway that ends at level `delay` leaves its kernel nothing to deliver after the delay.
///
/// The next holder waits for the delay, which counts from the end of the session.
#[tokio::test]
async fn dying_gateway_discards_unsent_data() {
    let site = TestSite::fresh().await;
    let Some(way) = LossyPath::to(site.origin.open_listener("gw-1")).await else { return };
    let ours = |name: &str| {
        let policy =
            site.policy(name).with("/upstreams/ledger/fencing", "delay").with("/routes/0/fence/wait", "20s");
        policy.with("/upstreams/ledger/delay", "2s").with("/upstreams/ledger/response_timeout", "2s")
    };
    let broken = ours("gw-1").with("/upstreams/ledger/endpoints", json!([format!("http://{}", way.address)]));
    let next = Gateway::start(&ours("gw-2")).await;
    let paths = ["/pay/killed", "/pay/drained", "/pay/told-twice"];
    let mut left = Vec::new();
    for (path, end) in paths.into_iter().zip(ProcessEnd::ALL) {
        let gateway = start_impatient_gateway(&broken, end).await;
        left.push(way.leave_undelivered(&gateway, TestRequest::post(path).body("old"), end).await);
    }
    assert_eq!(left, [0; 3], "{:?}", ProcessEnd::ALL);
    assert_eq!(next.send(&TestRequest::post(paths[0])).await.status, 200);
    tokio::time::sleep(QUIET).await;
    assert_eq!(paths.map(|path| site.origin.count(path)), [1, 0, 0]);
}

/// Nothing is left to the kernel over HTTP/2 and over TLS either.
#[tokio::test]
async fn http2_and_tls_discard_unsent_data() {
    let site = TestSite::fresh().await;
    let h2 = OriginH2::start();
    let home = scratch::temp_dir();
    let Some(plain) = LossyPath::to(h2.address).await else { return };
    let endpoint = json!([format!("http://{}", plain.address)]);
    let policy = site.policy("gw-1").with("/upstreams/ledger/endpoints", endpoint);
    let speaking =
        start_impatient_gateway(&policy.with("/upstreams/ledger/protocol", "http2"), ProcessEnd::Killed)
            .await;
    let by_http2 =
        plain.leave_undelivered(&speaking, TestRequest::post("/pay/7").body("old"), ProcessEnd::Killed).await;

    let authority = TestCa::new();
    authority.write(&home.path().join("ca.pem"));
    let signed = authority.sign(&["ledger.internal"]);
    let door = site.origin.open_listener("gw-2");
    let front = TlsTerminator::start(&signed, &ClientCertificatePolicy::Anybody, &["http/1.1"], door);
    let Some(secured) = LossyPath::to(front.address).await else { return };
    let tls = json!({"ca_file": home.path().join("ca.pem"), "server_name": "ledger.internal"});
    let endpoint = json!([format!("https://{}", secured.address)]);
    let policy =
        site.policy("gw-2").with("/upstreams/ledger/endpoints", endpoint).with("/upstreams/ledger/tls", tls);
    let speaking = start_impatient_gateway(&policy, ProcessEnd::Killed).await;
    let by_tls = secured
        .leave_undelivered(&speaking, TestRequest::post("/pay/8").body("old"), ProcessEnd::Killed)
        .await;
    assert_eq!((by_http2, by_tls), (0, 0));

    tokio::time::sleep(QUIET).await;
    assert_eq!((h2.requests_on("/pay/7").len(), site.origin.count("/pay/8")), (0, 0));
}

#[tokio::test]
async fn orderly_shutdown_resets_no_connection() {
    let site = TestSite::fresh().await;
    let Some(way) = LossyPath::to(site.origin.open_listener("gw-1")).await else { return };
    let endpoint = json!([format!("http://{}", way.address)]);
    let policy = site.policy("gw-1").with("/upstreams/ledger/endpoints", endpoint);
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&TestRequest::get("/idle")).await.status, 200);
    let HeldRequest { request, latch, .. } =
        site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    gateway.signal(Signal::TERM);
    gateway.wait_unready().await;
    latch.release();
    assert_eq!(request.answer().await.status, 200);
    assert!(gateway.exit().await.success());
    let ended = |log: &OriginLog| {
        log.records.iter().all(|record| log.ended.contains(&record.connection)).then_some(())
    };
    site.origin.wait_for("the ends of its connections", ended).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(way.resets.load(SeqCst), 0);
}

/// A statement that a guard has given up is also given up by its kernel in time.
///
/// The connection of a guard to its database has the same time limit as its connection to a service.
#[tokio::test]
async fn abandoned_statement_is_never_delivered() {
    let store = SharedStore::new().await;
    let Some(way) = LossyPath::to(store.database.address).await else { return };
    let guard = store.at_addresses(&[way.address]).guard(Arc::new(MachineClock), "cut").await;
    guard.send_heartbeat().await.expect("the way is free");
    way.drop_packets();
    let lost = guard.send_heartbeat();
    let (lost, begun) = tokio::join!(lost, async {
        way.wait_undelivered(true).await;
        let begun = Instant::now();
        way.wait_undelivered(false).await;
        begun
    });
    assert!(lost.is_err(), "nothing arrives");
    let after = begun.elapsed();
    assert!(after < SENDS * 2, "given up after {after:?}");
}
