//! Tests that a reload waits for a request that has looked up its plan, even if other tasks run before that request is
//! polled.

use std::{
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
};

use fencegate_config::{
    active_config::{ActiveConfig, RunningRequestGuard},
    process_context::ProcessContext,
};
use fencegate_guard_client::guard_identity::UpstreamGuardRegistry;
use fencegate_http::{
    body::Body,
    buffered::{HeadMemoryBudget, MemoryBudget},
    connection_info::ConnectionInfo,
    connection_state::ServerConnectionState,
    listen::ConnectionService,
};
use fencegate_http_client::upstream::endpoint_set::UpstreamSet;
use fencegate_metrics::AllMetricFamilies;
use fencegate_policies::{
    file::load,
    plan::{CommonServingPlan, UpstreamId},
};
use fencegate_process::{
    clock::MachineClock,
    randomness::{Guid, SystemRandomness},
};
use futures_util::FutureExt;
use hyper::{Request, client, rt::Executor, server::conn::http2::Builder};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::{LocalSet, spawn_local, yield_now},
};

use super::*;
use crate::{
    concurrency_limit::ConcurrencyLimit,
    pipeline::{PipelineParts, routing_pipeline},
    plan_context::WorkerPlanContext,
    steps::{authenticate::AccessTokenSource, client_limit::ClientConcurrencyLimit, key::KeyedRequest},
    via::ViaName,
};

fn policy(key: &str) -> String {
    format!(
        r#"version: 1
listeners: {{public: {{address: 127.0.0.1:8080}}}}
zookeeper: {{servers: [zk1:2181]}}
upstreams: {{a: {{endpoints: ["http://a:80"], fencing: upstream}}}}
routes: [{{name: pay, upstream: a, match: {{path: "/pay/{{id}}"}}, fence: {{key: "{key}/{{path.id}}"}}}}]
"#
    )
}

/// A last step that never answers, and keeps the [`RunningRequestGuard`] of each request.
#[derive(Clone, Default)]
struct RetainingHandler(Rc<RefCell<Vec<Rc<RunningRequestGuard>>>>);

impl Handler<KeyedRequest> for RetainingHandler {
    async fn handle(&self, request: KeyedRequest) -> Result<Reply, Refusal> {
        let fenced = request.fenced.expect("the route fences");
        self.0.borrow_mut().push(fenced.running);
        std::future::pending().await
    }
}

/// Polls no stream before the test releases it, as on a worker whose other tasks run first.
#[derive(Clone, Default)]
struct DeferredExecutor(Rc<RefCell<Vec<BoxedTask>>>);

type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

impl<F: Future<Output = ()> + 'static> Executor<F> for DeferredExecutor {
    fn execute(&self, stream: F) {
        self.0.borrow_mut().push(Box::pin(stream));
    }
}

fn pipeline(
    config: &Arc<ActiveConfig>,
    all: &Arc<AllMetricFamilies>,
    keeps: &RetainingHandler,
) -> PipelineInstance {
    let metrics = Rc::new(WorkerMetrics::new(all.clone(), &config.plan));
    let plan = WorkerPlanContext {
        process: ProcessContext::with_budget(
            Arc::new(MachineClock),
            all.clone(),
            MemoryBudget::new(1 << 20, all.buffered().clone()),
        ),
        config: config.clone(),
        metrics: metrics.clone(),
        guards: Arc::new(UpstreamGuardRegistry::new(Arc::default())),
        clients: Default::default(),
        running: Default::default(),
    };
    let parts = PipelineParts {
        plan: Rc::new(plan),
        in_flight: ConcurrencyLimit::new(9),
        per_client: ClientConcurrencyLimit { shares: Default::default(), most: None },
        via: ViaName::new(Guid::new(&SystemRandomness)),
        peer_secret: None,
        tickets: None,
        leases: None,
        tokens: AccessTokenSource::Verified(None),
    };
    PipelineInstance::new(routing_pipeline(parts, keeps.clone()), metrics)
}

fn build_plan(key: &str) -> (Arc<CommonServingPlan>, Arc<UpstreamSet>, Arc<AllMetricFamilies>) {
    let gateway = load(&policy(key)).plan.expect("sound");
    let plan = Arc::new(gateway.serving.clone());
    let all = AllMetricFamilies::for_gateway(&gateway);
    let fleets = UpstreamSet::for_display(&plan, all.endpoints());
    (plan, fleets, all)
}

/// Sends one request with `asks` as its version and fields, answers it with `body`, and returns the bytes of the
/// response.
async fn answer_once(asks: &str, body: Body) -> String {
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    let body = RefCell::new(Some(body));
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let mut reply = hyper::Response::new(body.take().expect("one request"));
        if !has_visible_end(request.version(), &reply) {
            close_connection(request.version(), &mut reply);
        }
        std::future::ready(Ok::<_, std::convert::Infallible>(reply))
    });
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(ours), service);
    let asking = async {
        let request = format!("GET / {asks}\r\nHost: a\r\n\r\n");
        theirs.write_all(request.as_bytes()).await.expect("written");
        let mut answer = Vec::new();
        while !answer.windows(5).any(|piece| piece == b"hello") {
            assert!(theirs.read_buf(&mut answer).await.expect("read") > 0, "{}", answer.escape_ascii());
        }
        String::from_utf8(answer).expect("text")
    };
    let mut asking = std::pin::pin!(asking);
    tokio::select! {
        answer = &mut asking => answer,
        _served = serving => asking.await,
    }
}

/// If a client of HTTP/1.0 asks to keep the connection, it is told that the connection ends, unless the response shows
/// where its body ends.
#[tokio::test]
async fn http10_response_without_length_closes() {
    let chunks = || Body::with_trailers("hello".into(), Some(hyper::HeaderMap::new()));
    for (asks, body, said) in [
        ("HTTP/1.0\r\nConnection: keep-alive", chunks(), "connection: close"),
        ("HTTP/1.0", chunks(), "connection: close"),
        ("HTTP/1.0\r\nConnection: Keep-Alive", Body::from_bytes("hello".into()), "connection: keep-alive"),
        ("HTTP/1.1", chunks(), "transfer-encoding: chunked"),
    ] {
        let answer = answer_once(asks, body).await;
        assert!(answer.contains(said), "{asks}: {answer}");
        let closes = said == "connection: close";
        assert_eq!(answer.contains("keep-alive"), said.ends_with("keep-alive"), "{asks}: {answer}");
        assert!(!closes || answer.ends_with("\r\n\r\nhello"), "{asks}: {answer}");
    }
}

/// A reload waits for an HTTP/2 request that has received its plan, even if its stream was not polled yet.
#[tokio::test]
async fn unpolled_http2_request_is_tracked() {
    LocalSet::new().run_until(check_unpolled_request()).await;
}

async fn check_unpolled_request() {
    let keeps = RetainingHandler::default();
    let later = DeferredExecutor::default();
    let (plan, fleets, all) = build_plan("pay");
    let first = ActiveConfig::initial(plan, fleets, None);
    let front = WorkerHttpHandler::new(
        pipeline(&first, &all, &keeps),
        LocalProcessRole::Gateway,
        CancellationToken::new(),
    );

    let memory = HeadMemoryBudget::new(MemoryBudget::new(1 << 20, all.buffered().clone()), None);
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let peer = ConnectionInfo::new(local, local);
    let frontend = Rc::new(front.clone());
    let state = ServerConnectionState::new_http2();
    let service = ConnectionService::new(frontend, peer, state, Duration::from_secs(9), memory);
    spawn_local(Builder::new(later.clone()).serve_connection(TokioIo::new(ours), service));
    let (mut sender, connection) =
        client::conn::http2::handshake(ThreadExecutor, TokioIo::new(theirs)).await.expect("it speaks HTTP/2");
    spawn_local(connection);
    let request = Request::post("http://a/pay/7").body(Body::empty()).expect("a request");
    spawn_local(sender.send_request(request));
    while later.0.borrow().is_empty() {
        yield_now().await;
    }

    // The request has looked up its plan, and another plan replaces it.
    let (plan, fleets, all) = build_plan("order");
    let (second, openings) = ActiveConfig::successor(&first, plan, fleets, None, &["pay".to_owned()]);
    let mut begun = Box::pin(front.replace_pipeline(pipeline(&second, &all, &keeps)));
    assert!(begun.as_mut().now_or_never().is_none(), "it may still begin under the old plan");

    let streams = std::mem::take(&mut *later.0.borrow_mut());
    let streams: Vec<_> = streams.into_iter().map(spawn_local).collect();
    begun.await;
    while keeps.0.borrow().is_empty() {
        yield_now().await;
    }
    let opening = openings.into_iter().next().expect("the key moves");
    assert!(opening.wait_predecessors().now_or_never().is_none(), "it runs under the old key");
    assert!(!second.is_generation_open(UpstreamId(0)));
    keeps.0.borrow_mut().clear();
    streams.iter().for_each(tokio::task::JoinHandle::abort);
    opening.wait_predecessors().await;
}

#[derive(Clone)]
struct ThreadExecutor;

impl<F: Future<Output: 'static> + 'static> Executor<F> for ThreadExecutor {
    fn execute(&self, future: F) {
        spawn_local(future);
    }
}
