//! The recording upstream: raw HTTP/1.1 on loopback, scripted per request, one clock for all it sees.
//!
//! Each gateway has a listener of its own at the origin. Answers are scripted per path as data (`OriginAction`). A
//! request can be held until the test releases it. The origin records each request from its first byte to the end of
//! its execution, and each piece of input with its time.

mod accounts;
mod action;
mod connection;
mod request_log;
mod state;

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use fencegate_policies::token::ReadWriteWatermarks;
use fencegate_testkit::wait::wait_until;
use tokio::{
    runtime::{Builder, Handle},
    sync::{oneshot, watch},
};

use self::{accounts::Accounts, state::OriginState};
pub use self::{
    accounts::{AccountFault, AccountIsolation, AccountRow, WORK},
    action::{Latch, OriginAction, OriginReply, ScriptedResponse},
    request_log::{ATTEMPT, AccessMode, AccountEffect, OriginLog, ReceivedBytes, RequestRecord},
};

/// An upstream service in this process. It runs on a thread of its own, so that a busy test does not delay its
/// times.
pub struct Origin {
    shared: Arc<OriginState>,
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    /// Dropped with the origin, which ends the thread.
    _running: oneshot::Sender<()>,
}

impl Origin {
    /// Starts an origin that answers 200 at once to each request without a script, and compares no tokens.
    pub fn start() -> Self {
        Self::launch(None, None)
    }

    /// Starts an origin that compares tokens, as a service behind `fencing: upstream` does: it answers 412 to a
    /// token that is not newer.
    pub fn with_comparison() -> Self {
        Self::launch(Some(Mutex::default()), None)
    }

    /// Starts an origin that keeps accounts, and adds one to an account for each fenced request. The execution takes
    /// the time in the request's field [`WORK`], and the body of the answer is the request's attempt id.
    pub fn with_accounts(rule: AccountIsolation) -> Self {
        Self::launch(None, Some(Accounts::new(rule)))
    }

    fn launch(
        marks: Option<Mutex<HashMap<String, ReadWriteWatermarks>>>,
        accounts: Option<Accounts>,
    ) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("runtime of the origin");
        let handle = runtime.handle().clone();
        let (running, stopped) = oneshot::channel::<()>();
        thread::spawn(move || runtime.block_on(stopped).ok());
        let connections = Arc::new(AtomicUsize::new(0));
        Self {
            shared: Arc::new(OriginState::new(marks, accounts)),
            runtime: handle,
            connections,
            _running: running,
        }
    }

    /// Opens a listener for one gateway. Requests that come through it are recorded under this gateway's name.
    pub fn open_listener(&self, gateway: &str) -> SocketAddr {
        self.open_listener_at(gateway, ([127, 0, 0, 1], 0).into())
    }

    /// Opens a listener like [`Self::open_listener`], at the given address.
    ///
    /// # Panics
    /// If another process listens at this address.
    pub fn open_listener_at(&self, gateway: &str, address: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::clone(&self.shared);
        let gateway = gateway.to_owned();
        let connections = Arc::clone(&self.connections);
        self.runtime.spawn(async move {
            let listener = into_tokio_listener(listener).expect("listener of the origin");
            while let Ok((stream, _)) = listener.accept().await {
                let number = connections.fetch_add(1, Ordering::Relaxed);
                let shared = Arc::clone(&shared);
                let gateway = gateway.clone();
                tokio::spawn(async move {
                    // Tests break connections on purpose, so an error is ignored. The log has all bytes that were
                    // read before.
                    drop(connection::serve_connection(Arc::clone(&shared), gateway, number, stream).await);
                    shared.log.send_modify(|log| log.ended.push(number));
                });
            }
        });
        address
    }

    /// Appends the actions for the next requests for a path.
    pub fn script(&self, path: &str, acts: impl IntoIterator<Item = OriginAction>) {
        self.shared.script().by_path.entry(path.to_owned()).or_default().extend(acts);
    }

    /// Sets the answers to the next requests, in their order. Every later request gets a 200.
    pub fn set_responses(&self, responses: impl IntoIterator<Item = ScriptedResponse>) {
        self.shared.script().responses = Some(responses.into_iter().collect());
    }

    /// Sets the action for requests whose path has no script left.
    pub fn set_default_action(&self, act: OriginAction) {
        self.shared.script().otherwise = act;
    }

    /// From now on answers 200 after this time to each request without a script.
    pub fn set_work_time(&self, work: Duration) {
        self.set_default_action(OriginAction::Answer(work, OriginReply::ok()));
    }

    /// Holds the next request for this path until the returned latch is released, then answers 200.
    pub fn hold(&self, path: &str) -> Latch {
        let latch = Latch::default();
        self.script(path, [OriginAction::Hold(latch.clone(), OriginReply::ok())]);
        latch
    }

    /// Queues faults. Each fault is used up by one request that names an account.
    ///
    /// # Panics
    /// If this origin keeps no accounts.
    pub fn queue_faults(&self, mishaps: impl IntoIterator<Item = AccountFault>) {
        self.accounts().queue_faults(mishaps);
    }

    /// The number of queued faults that no request has used up yet.
    ///
    /// # Panics
    /// If this origin keeps no accounts.
    pub fn faults_left(&self) -> usize {
        self.accounts().faults_left()
    }

    /// The accounts of this origin. Waits for accounts that an execution has locked.
    ///
    /// # Panics
    /// If this origin keeps no accounts.
    pub async fn rows(&self) -> BTreeMap<String, AccountRow> {
        self.accounts().rows().await
    }

    fn accounts(&self) -> &Accounts {
        self.shared.accounts.as_ref().expect("a service with accounts")
    }

    /// Reads the log. The caller must not keep the returned value over an await.
    pub fn log(&self) -> watch::Ref<'_, OriginLog> {
        self.shared.log.borrow()
    }

    /// Waits until `find` finds something in the log, and returns it.
    pub async fn wait_for<R>(&self, what: &str, find: impl Fn(&OriginLog) -> Option<R>) -> R {
        let mut log = self.shared.log.subscribe();
        let found = async {
            loop {
                if let Some(found) = find(&log.borrow_and_update()) {
                    return found;
                }
                log.changed().await.expect("the origin outlives its waiters");
            }
        };
        wait_until(what, found, || self.log().latest()).await
    }

    /// Waits until the n-th request for this path (counted from 1) was read in full.
    pub async fn wait_for_request(&self, path: &str, n: usize) -> RequestRecord {
        let what = format!("request {n} for {path} at the origin");
        self.wait_for(&what, |log| {
            log.requests_for(path).nth(n - 1).filter(|record| record.whole.is_some()).cloned()
        })
        .await
    }

    /// Waits until this number of further requests has come through one listener.
    pub async fn wait_more(&self, gateway: &str, count: usize) {
        let through = |log: &OriginLog| log.records.iter().filter(|record| record.gateway == gateway).count();
        let before = through(&self.log());
        let more = |log: &OriginLog| (through(log) >= before + count).then_some(());
        self.wait_for(&format!("{count} more through {gateway}"), more).await;
    }

    /// The number of requests for this path so far.
    pub fn count(&self, path: &str) -> usize {
        self.log().requests_for(path).count()
    }
}

fn into_tokio_listener(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::client::{RawClient, TestRequest};
    use fencegate_testkit::wait::QUIET;

    fn fenced(path: &str, epoch: u64) -> TestRequest {
        let token = format!("v1-{epoch:016x}-00000000-00000001");
        TestRequest::post(path).field("Fencing-Key", "a").field("Fencing-Token", &token)
    }

    /// Every request is recorded with the gateway that sent it, its token, its connection and its times.
    #[tokio::test]
    async fn requests_are_recorded_with_times() {
        let origin = Origin::start();
        let one = origin.open_listener("gw-1");
        let two = origin.open_listener("gw-2");
        origin.set_work_time(Duration::from_millis(5));
        fenced("/a?x=1", 7).body("hi").send_to(one).await.expect("answered");
        let between = Instant::now();
        TestRequest::get("/b").send_to(two).await.expect("answered");

        let log = origin.log();
        let [first, second] = log.records.as_slice() else { panic!("two records: {log:#?}") };
        assert_eq!((first.method(), first.path(), first.gateway.as_str()), ("POST", "/a?x=1", "gw-1"));
        assert_eq!((first.key(), first.expect_token().number()), (Some("a"), 7));
        assert_eq!(first.request.body, b"hi");
        assert!(first.ended.expect("answered") - first.arrived >= Duration::from_millis(5));
        assert_eq!((second.gateway.as_str(), second.token()), ("gw-2", None));
        assert_ne!(first.connection, second.connection);
        assert_eq!(log.bytes_since("gw-1", between), b"");
        assert!(log.bytes_since("gw-2", between).starts_with(b"GET /b HTTP/1.1\r\n"));
    }

    /// A held request is answered when its latch is released, and its record has no end until then.
    #[tokio::test]
    async fn held_request_runs_until_release() {
        let origin = Origin::start();
        let door = origin.open_listener("gw-1");
        let latch = origin.hold("/a");
        let asked = tokio::spawn(async move { fenced("/a", 1).send_to(door).await });
        assert!(origin.wait_for_request("/a", 1).await.ended.is_none());
        tokio::time::sleep(QUIET).await;
        assert!(!asked.is_finished());
        latch.release();
        assert_eq!(asked.await.expect("no panic").expect("answered").status, 200);
        assert!(origin.log().records[0].ended.is_some());
    }

    /// A caller that disconnects is recorded as gone, and its execution goes on until it is released.
    #[tokio::test]
    async fn execution_continues_after_caller_disconnects() {
        let origin = Origin::start();
        let door = origin.open_listener("gw-1");
        let latch = origin.hold("/a");
        let asked = tokio::spawn(async move { fenced("/a", 1).send_to(door).await });
        origin.wait_for_request("/a", 1).await;
        asked.abort();
        origin.wait_for("the caller to be gone", |log| log.records[0].abandoned).await;
        assert!(origin.log().records[0].ended.is_none());
        latch.release();
        origin.wait_for("the end of the execution", |log| log.records[0].ended).await;
    }

    /// The replies scripted for a path come in order, and the default reply comes after them.
    #[tokio::test]
    async fn scripts_run_in_order_then_default() {
        let origin = Origin::start();
        let door = origin.open_listener("gw-1");
        let reply = OriginReply::with_body("ten bytes.").status(201).field("X-A", "b");
        let failures =
            [OriginAction::Reset, OriginAction::CloseInHead, OriginAction::CloseInBody(reply.clone())];
        origin.script("/a", failures.into_iter().chain([OriginAction::now(reply.trailer("X-T", "t"))]));
        for failure in ["reset", "close in head", "close in body"] {
            TestRequest::post("/a").send_to(door).await.expect_err(failure);
        }
        let scripted = TestRequest::post("/a").send_to(door).await.expect("answered");
        assert_eq!(
            (scripted.status, scripted.field("x-a"), &scripted.body[..]),
            (201, Some("b"), &b"ten bytes."[..])
        );
        assert_eq!(scripted.trailers["x-t"], "t");
        assert_eq!(TestRequest::post("/a").send_to(door).await.expect("answered").body, "ok");
        assert!(origin.log().records.iter().all(|record| record.ended.is_some()));
    }

    /// The head arrives while the body is held in its middle, and the whole body arrives after the release.
    #[tokio::test]
    async fn half_body_arrives_before_release() {
        let origin = Origin::start();
        let mut raw = RawClient::connect(origin.open_listener("gw-1")).await.expect("listens");
        let latch = Latch::default();
        origin.script(
            "/a",
            [OriginAction::HoldInBody(latch.clone(), OriginReply::with_body(vec![7; 1 << 20]))],
        );
        raw.send("GET /a HTTP/1.1\r\n\r\n").await.expect("connected");
        let mut answer = raw.read_head().await.expect("a head");
        assert!(origin.log().records[0].ended.is_none());
        latch.release();
        raw.read_body(&mut answer).await.expect("the rest");
        assert_eq!(answer.body, vec![7; 1 << 20]);
    }

    /// A comparing origin refuses a token that is older than the newest one of its key, or equal to it.
    #[tokio::test]
    async fn comparing_origin_refuses_stale_token() {
        let origin = Origin::with_comparison();
        let door = origin.open_listener("gw-1");
        for (epoch, status) in [(5, 200), (5, 412), (4, 412), (6, 200)] {
            let answer = fenced("/a", epoch).send_to(door).await.expect("answered");
            assert_eq!(answer.status, status, "epoch {epoch}");
        }
        let stale: Vec<bool> = origin.log().records.iter().map(|record| record.stale).collect();
        assert_eq!(stale, [false, true, true, false]);
    }
}
