//! A connection that switches protocols: only where its route says so, and on fenced routes only under the tenure.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use fencegate::demo::{child::Signal, relay::Relay};
use fencegate_tests::{
    client::{Ask, Outcome},
    gateway::{Gateway, Launch, Line},
    patience::{QUIET, patiently},
    policy::Policy,
    site::Site,
    terminator::{Clients, Terminator},
};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};

use super::tls::Keys;

/// Switches where it is asked to, then says every byte back; `/forbidden` is refused, everything else is answered.
struct Echo {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (heads, heard) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<Vec<u8>>>::default());
        let (seen, told) = (heads.clone(), heard.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, seen.clone(), told.clone()));
            }
        });
        Self { address, heads, heard }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no panic").clone()
    }
}

async fn converse(mut stream: TcpStream, heads: Arc<Mutex<Vec<String>>>, heard: Arc<Mutex<Vec<u8>>>) {
    while let Some(head) = read_head(&mut stream).await {
        heads.lock().expect("no panic").push(head.clone());
        let asked = head.to_ascii_lowercase().contains("\r\nupgrade: websocket\r\n");
        if !asked || head.contains("/forbidden") {
            let status = if asked { "403 Forbidden" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno");
            drop(stream.write_all(answer.as_bytes()).await);
            continue;
        }
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nhello";
        drop(stream.write_all(switch.as_bytes()).await);
        let mut piece = [0; 1024];
        while let Ok(read @ 1..) = stream.read(&mut piece).await {
            heard.lock().expect("no panic").extend(&piece[..read]);
            drop(stream.write_all(&piece[..read]).await);
        }
        if head.contains("/stays") {
            // At work, though the other side has ended its own.
            std::future::pending::<()>().await;
        }
        return;
    }
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// The policy's routes, which let WebSocket pass, to an echo.
fn policy(site: &Site, name: &str, echo: &Echo) -> Policy {
    site.policy(name)
        .with("/upstreams/ledger/endpoints", json!([format!("http://{}", echo.address)]))
        .with("/routes/0/match/methods", json!(["GET", "POST"]))
        .with("/routes/0/upgrade", json!(["websocket"]))
        .with("/routes/1/upgrade", json!(["websocket"]))
}

/// A client that has asked, and the head of its answer.
async fn ask(gateway: &Gateway, path: &str) -> (TcpStream, String) {
    ask_over(TcpStream::connect(gateway.public).await.expect("listens"), gateway, path).await
}

async fn ask_over<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    gateway: &Gateway,
    path: &str,
) -> (S, String) {
    let question = format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: y\r\n\r\n"
    );
    stream.write_all(question.as_bytes()).await.expect("connected");
    let head = patiently("an answer", read_head(&mut stream), || gateway.log()).await.expect("an answer");
    (stream, head)
}

async fn hears(stream: &mut (impl AsyncRead + Unpin), wanted: &str) {
    let mut heard = vec![0; wanted.len()];
    patiently(wanted, stream.read_exact(&mut heard), || "nothing").await.expect("the tunnel is open");
    assert_eq!(heard, wanted.as_bytes());
}

async fn ends(stream: &mut (impl AsyncRead + Unpin)) {
    let mut rest = Vec::new();
    // With a reset or in order: it is over.
    drop(patiently("the end of the tunnel", stream.read_to_end(&mut rest), || "open").await);
}

#[tokio::test]
async fn bytes_pass_both_ways_where_the_route_lets_them() {
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let gateway = Gateway::start(&policy(&site, "gw-1", &echo)).await;
    let (mut stream, head) = ask(&gateway, "/chat").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let told = head.to_ascii_lowercase();
    for field in ["connection: upgrade", "upgrade: websocket", "sec-websocket-accept: x"] {
        assert!(told.contains(field), "{field} in {head}");
    }
    hears(&mut stream, "hello").await;
    for n in 0..20 {
        let word = format!("word {n}");
        stream.write_all(word.as_bytes()).await.expect("open");
        hears(&mut stream, &word).await;
    }
    gateway.gauge_becomes("fencegate_tunnels", 1.0).await;
    stream.shutdown().await.expect("open");
    ends(&mut stream).await;
    gateway.gauge_becomes("fencegate_tunnels", 0.0).await;
    let asked = echo.heads()[0].to_ascii_lowercase();
    assert!(asked.contains("sec-websocket-key: y") && !asked.contains("fencing"), "{asked}");
}

#[tokio::test]
async fn nothing_switches_where_the_route_does_not_say_so() {
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let closed = policy(&site, "gw-1", &echo).with("/routes/1/upgrade", json!(["other"]));
    let gateway = Gateway::start(&closed).await;
    let (_stream, head) = ask(&gateway, "/chat").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(!echo.heads()[0].to_ascii_lowercase().contains("upgrade"), "{:?}", echo.heads());
}

#[tokio::test]
async fn another_answer_than_a_switch_passes_as_it_is() {
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let gateway = Gateway::start(&policy(&site, "gw-1", &echo)).await;
    let (_stream, head) = ask(&gateway, "/pay/forbidden").await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    assert!(head.to_ascii_lowercase().contains("fencing-outcome: done"), "{head}");
    assert_eq!(gateway.send(&Ask::post("/pay/forbidden")).await.status, 200, "the key is free");
}

#[tokio::test]
async fn a_tunnel_on_a_fenced_route_holds_its_key_until_the_upstream_has_ended_it() {
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let fenced = policy(&site, "gw-1", &echo).with("/routes/0/fence/wait", "400ms");
    let gateway = Gateway::start(&fenced).await;
    let (mut stream, head) = ask(&gateway, "/pay/7").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.to_ascii_lowercase().contains("fencing-token: v1-"), "{head}");
    hears(&mut stream, "hello").await;
    let locked = gateway.send(&Ask::post("/pay/7")).await;
    assert_eq!((locked.status, locked.outcome()), (423, Some(Outcome::NotDispatched)));
    stream.write_all(b"still here").await.expect("open");
    hears(&mut stream, "still here").await;
    stream.shutdown().await.expect("open");
    ends(&mut stream).await;
    assert_eq!(gateway.send(&Ask::post("/pay/7")).await.status, 200);
    let heads = echo.heads();
    let token = |head: &str| {
        head.lines().find(|line| line.to_ascii_lowercase().starts_with("fencing-token")).map(str::to_owned)
    };
    assert!(token(&heads[0]) < token(&heads[1]), "{heads:?}");
}

#[tokio::test]
async fn a_tunnel_ends_with_the_session_that_it_is_under() {
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let relay = Relay::start(site.zookeeper).expect("a relay");
    let cut_off =
        policy(&site, "gw-1", &echo).with("/zookeeper/servers", json!([relay.address().to_string()]));
    let gateway = Gateway::start(&cut_off).await;
    let (mut stream, _) = ask(&gateway, "/pay/7").await;
    hears(&mut stream, "hello").await;
    drop(relay);
    let cut = |line: &Line| line.message() == "tunnel.ended" && line.text().contains("could not be proven");
    gateway.says("the end of the tunnel", cut).await;
    // It may be told of the end later than it can still write.
    drop(stream.write_all(b"too late").await);
    ends(&mut stream).await;
    tokio::time::sleep(QUIET).await;
    assert!(echo.heard.lock().expect("no panic").is_empty(), "a byte left after the session was lost");
}

#[tokio::test]
async fn a_tunnel_is_cut_when_it_is_idle_or_its_tenure_is_over() {
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let idle = policy(&site, "gw-1", &echo).with("/upstreams/ledger/tunnel_idle", "300ms");
    let gateway = Gateway::start(&idle).await;
    let (mut stream, _) = ask(&gateway, "/chat").await;
    hears(&mut stream, "hello").await;
    ends(&mut stream).await;
    let brief = json!({"mode": "cached", "linger": "10ms", "max_hold": "10ms", "max_tenure": "500ms"});
    let gateway = Gateway::start(&policy(&site, "gw-2", &echo).with("/defaults/hold", brief)).await;
    let (mut stream, _) = ask(&gateway, "/pay/7").await;
    hears(&mut stream, "hello").await;
    ends(&mut stream).await;
    gateway.says("why", |line: &Line| line.text().contains("the tenure is over")).await;
    assert_eq!(gateway.send(&Ask::post("/pay/7")).await.status, 200, "the key is free");
}

/// What nobody takes does not count as passed.
#[tokio::test]
async fn a_tunnel_whose_client_reads_nothing_is_idle() {
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let idle = policy(&site, "gw-1", &echo).with("/upstreams/ledger/tunnel_idle", "500ms");
    let gateway = Gateway::start(&idle).await;
    let (mut stream, _) = ask(&gateway, "/chat").await;
    // More than the kernel keeps, and all of it comes back.
    let much = vec![7; 64 << 20];
    drop(patiently("the end of the tunnel", stream.write_all(&much), || "open").await);
    gateway.says("why", |line: &Line| line.message() == "tunnel.ended" && line.text().contains("idle")).await;
}

#[tokio::test]
async fn the_time_limits_of_http_do_not_end_a_tunnel() {
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let brief = json!({"idle": "300ms", "request_headers": "300ms", "request_body": "300ms", "response_write": "300ms"});
    let gateway =
        Gateway::start(&policy(&site, "gw-1", &echo).with("/listeners/public/timeouts", brief)).await;
    let (mut stream, _) = ask(&gateway, "/chat").await;
    hears(&mut stream, "hello").await;
    // The silence that each of them would have ended.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    stream.write_all(b"still here").await.expect("open");
    hears(&mut stream, "still here").await;
}

#[tokio::test]
async fn a_tunnel_takes_a_place_among_the_connections_of_its_listener() {
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let one = policy(&site, "gw-1", &echo).with("/listeners/public/limits", json!({"connections": 1}));
    let gateway = Launch::new(&one).workers(1).start().await;
    let (mut stream, _) = ask(&gateway, "/chat").await;
    hears(&mut stream, "hello").await;
    // Another client: who has a place already is turned away at once.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.3:0".parse().expect("an address")).expect("an address of loopback");
    let mut waits = socket.connect(gateway.public).await.expect("the kernel queues it");
    waits.write_all(b"GET /read HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("queued");
    assert!(timeout(QUIET, read_head(&mut waits)).await.is_err(), "nobody serves it while the tunnel lasts");
    drop(stream);
    let head = patiently("an answer", read_head(&mut waits), || gateway.log()).await.expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[tokio::test]
async fn a_stopping_gateway_gives_tunnels_half_of_its_drain() {
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let policy = policy(&site, "gw-1", &echo).with("/listeners/public/timeouts/drain", "3s");
    let gateway = Gateway::start(&policy).await;
    let (mut stream, _) = ask(&gateway, "/pay/7").await;
    hears(&mut stream, "hello").await;
    gateway.signal(Signal::TERM);
    gateway.becomes_unready().await;
    stream.write_all(b"still here").await.expect("open");
    hears(&mut stream, "still here").await;
    ends(&mut stream).await;
    assert_eq!(gateway.exit().await.code(), Some(0));
}

/// Where nobody compares tokens, the service of a tunnel that was cut has its time, also after the client has ended its side.
#[tokio::test]
async fn a_stopping_gateway_keeps_the_key_of_a_tunnel_until_its_upstream_has_had_its_time() {
    tokio::join!(cut_by_the_drain(Client::Listens), cut_by_the_drain(Client::HasEnded));
}

/// What the client of a tunnel does when its gateway stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Listens,
    /// Its own side of it.
    HasEnded,
}

async fn cut_by_the_drain(client: Client) {
    // Longer than the half of the drain that a tunnel has, and shorter than all of it.
    const TIME: Duration = Duration::from_millis(2500);
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let ours = |name| {
        policy(&site, name, &echo)
            .with("/upstreams/ledger/fencing", "none")
            .with("/upstreams/ledger/response_timeout", "2500ms")
            .with("/routes/0/fence/wait", "20s")
            .with("/listeners/public/timeouts/drain", "4s")
    };
    let (first_policy, other_policy) = (ours("gw-1"), ours("gw-2"));
    let (gateway, other) = tokio::join!(Gateway::start(&first_policy), Gateway::start(&other_policy));
    let (mut stream, _) = ask(&gateway, "/pay/stays").await;
    hears(&mut stream, "hello").await;
    gateway.signal(Signal::TERM);
    gateway.becomes_unready().await;
    let wrote = Instant::now();
    stream.write_all(b"still here").await.expect("open");
    hears(&mut stream, "still here").await;
    if client == Client::HasEnded {
        stream.shutdown().await.expect("open");
    }
    let next = other.send(&Ask::post("/pay/stays")).await;
    let after = wrote.elapsed();
    assert_eq!(next.status, 200, "{next:?}");
    assert!(after >= TIME, "{client:?}: given on {after:?} after the last byte");
}

/// The upstream has ended nothing, and may be at work on what it was told.
#[tokio::test]
async fn where_nobody_compares_tokens_the_key_of_a_tunnel_that_we_end_rests_until_its_upstream_has_had_its_time()
 {
    tokio::join!(ended_by_us(Ends::ItsClientBreaksOff), ended_by_us(Ends::ItIsIdle));
}

/// Why a tunnel is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    ItsClientBreaksOff,
    ItIsIdle,
}

async fn ended_by_us(how: Ends) {
    const TIME: Duration = Duration::from_millis(1500);
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let policy = policy(&site, "gw-1", &echo)
        .with("/upstreams/ledger/fencing", "none")
        .with("/upstreams/ledger/response_timeout", "1500ms")
        .with("/upstreams/ledger/tunnel_idle", "700ms")
        .with("/routes/0/fence/wait", "20s");
    let gateway = Gateway::start(&policy).await;
    let (mut stream, _) = ask(&gateway, "/pay/stays").await;
    hears(&mut stream, "hello").await;
    let wrote = Instant::now();
    stream.write_all(b"still here").await.expect("open");
    hears(&mut stream, "still here").await;
    let stays = if how == Ends::ItsClientBreaksOff {
        stream.set_zero_linger().expect("open");
        None
    } else {
        Some(stream)
    };
    let next = gateway.send(&Ask::post("/pay/stays")).await;
    let after = wrote.elapsed();
    assert_eq!(next.status, 200, "{next:?}");
    assert!(after >= TIME, "{how:?}: given on {after:?} after the last byte");
    drop(stays);
}

/// Nothing was promised to it; but to who comes after the change.
#[tokio::test]
async fn who_comes_when_a_route_no_longer_only_observes_waits_for_a_tunnel_without_a_lock() {
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let policy = policy(&site, "gw-1", &echo)
        .with("/routes/0/match/path", "/pay")
        .with("/routes/0/fence/key", "account/{header.x-account}");
    let gateway = Gateway::start(&policy.clone().with("/routes/0/fence/enforce", "observe")).await;
    let (mut stream, head) = ask(&gateway, "/pay").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(!head.to_ascii_lowercase().contains("fencing-token"), "it names no account: {head}");
    hears(&mut stream, "hello").await;
    gateway.rewrite(&policy);
    assert_eq!(gateway.reload(&[]).await.1["difference"]["rekeyed"], json!(["pay"]));
    let first = gateway.begin(Ask::post("/pay").field("x-account", "7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(echo.heads().len(), 1, "it began beside one without a lock");
    stream.shutdown().await.expect("open");
    ends(&mut stream).await;
    assert_eq!(first.answer().await.status, 200);
}

/// Below TLS on both sides nothing is lost either: not what comes with the switch, not a large piece, and not the end.
#[tokio::test]
async fn tunnels_pass_through_tls_to_client_and_upstream() {
    let (site, echo, keys) = (Site::fresh().await, Echo::start().await, Keys::new());
    keys.authority.write(&keys.path("ca.pem"));
    let signed = keys.authority.sign(&["127.0.0.1"]);
    let front = Terminator::start(&signed, &Clients::Anybody, &["http/1.1"], echo.address);
    let policy = policy(&site, "gw-1", &echo)
        .with("/listeners/public/tls", json!({"certificates": [keys.write("a", "a")]}))
        .with("/upstreams/ledger/endpoints", json!([format!("https://{}", front.address)]))
        .with("/upstreams/ledger/tls", json!({"ca_file": keys.path("ca.pem")}));
    let gateway = Gateway::start(&policy).await;
    let large = "0123456789".repeat(30_000);
    for path in ["/chat", "/pay/7"] {
        let stream =
            keys.client().offering(&["http/1.1"]).connect(gateway.public, "a").await.expect("accepted");
        let (stream, head) = ask_over(stream, &gateway, path).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let (mut input, mut output) = tokio::io::split(stream);
        hears(&mut input, "hello").await;
        let (said, ()) = tokio::join!(output.write_all(large.as_bytes()), hears(&mut input, &large));
        said.expect("open");
        if path == "/pay/7" {
            gateway.gauge_becomes("fencegate_locks_held", 1.0).await;
        }
        output.shutdown().await.expect("open");
        let mut rest = Vec::new();
        let end = patiently("the end", input.read_to_end(&mut rest), || gateway.log()).await;
        assert_eq!(end.expect("in order, not cut off"), 0, "{path}");
        gateway.gauge_becomes("fencegate_tunnels", 0.0).await;
        gateway.gauge_becomes("fencegate_locks_held", 0.0).await;
    }
    assert!(front.seen().iter().all(|seen| seen.protocol.as_deref() == Some("http/1.1")));
}

/// Switches, and then resets its connection.
async fn resetting() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                read_head(&mut stream).await;
                let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello";
                drop(stream.write_all(switch.as_bytes()).await);
                // The word that it has arrived.
                drop(stream.read_u8().await);
                stream.set_zero_linger().expect("open");
            });
        }
    });
    address
}

/// It held the key for as long as an idle tunnel does, ten minutes, and the client was not told.
#[tokio::test]
async fn a_side_that_resets_ends_the_tunnel_and_frees_the_key_at_once() {
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let endpoint = json!([format!("http://{}", resetting().await)]);
    let gateway =
        Gateway::start(&policy(&site, "gw-1", &echo).with("/upstreams/ledger/endpoints", endpoint)).await;
    for _ in 0..2 {
        let (mut stream, head) = ask(&gateway, "/pay/7").await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        hears(&mut stream, "hello").await;
        stream.write_all(b"x").await.expect("connected");
        let ended = patiently("the end", stream.read(&mut [0; 8]), || gateway.log()).await;
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
    // The other side: it is told to the service, which then is done.
    let gateway = Gateway::start(&policy(&site, "gw-2", &echo)).await;
    for _ in 0..2 {
        let (mut stream, head) = ask(&gateway, "/pay/8").await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        hears(&mut stream, "hello").await;
        stream.set_zero_linger().expect("open");
    }
}

#[tokio::test]
async fn of_several_protocols_the_one_that_may_pass_is_asked_for() {
    let (site, echo) = (Site::fresh().await, Echo::start().await);
    let gateway = Gateway::start(&policy(&site, "gw-1", &echo)).await;
    for (offered, passes) in [("h2c, websocket", true), ("websocket, h2c", true), ("h2c, chat", false)] {
        let mut stream = TcpStream::connect(gateway.public).await.expect("listens");
        let question =
            format!("GET /read HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {offered}\r\n\r\n");
        stream.write_all(question.as_bytes()).await.expect("connected");
        let head = patiently("an answer", read_head(&mut stream), || gateway.log()).await.expect("an answer");
        assert_eq!(head.starts_with("HTTP/1.1 101 "), passes, "{offered}: {head}");
        let seen = echo.heads().pop().expect("a request").to_ascii_lowercase();
        assert_eq!(seen.contains("\r\nupgrade: websocket\r\n"), passes, "{offered}: {seen}");
        assert!(!seen.contains("h2c"), "{offered}: {seen}");
    }
}
