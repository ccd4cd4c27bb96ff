//! Sends spans to a collector (OTLP, `http/protobuf`) in batches, from a thread of its own. Requests never wait for
//! the exporter: spans that do not fit into the queue, or that the collector refuses, are counted and lost. Nothing
//! is sent twice.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, mpsc as wait},
    thread,
    time::Duration,
};

use bytes::Bytes;
use fencegate_http_client::http1::{ExchangeError, Http1Connection};
use fencegate_policies::plan::TraceExportSettings;
use http_body_util::Full;
use hyper::{
    Request, StatusCode,
    header::{CONTENT_TYPE, HOST},
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::InstrumentationScope,
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use prometheus::IntCounter;
use prost::Message;
use tokio::{net::TcpStream, sync::mpsc, time::timeout};
use tracing::{info, warn};

use super::{
    record::RequestTelemetryRecord,
    spans::{spans_for, string_attribute},
};

/// Takes spans from any thread, and is cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct SpanExporter {
    queue: mpsc::Sender<SpanExportItem>,
    lost: IntCounter,
    /// Disconnected when the exporter thread has ended.
    ended: Arc<Mutex<wait::Receiver<()>>>,
}

/// The exporter of the process, with the settings of one plan.
#[derive(Debug)]
pub(super) struct PlanSpanExporter {
    exporter: SpanExporter,
    to: Arc<TraceExportSettings>,
}

/// All spans of one request.
#[derive(Debug)]
struct SpanExportItem {
    to: Arc<TraceExportSettings>,
    spans: Vec<Span>,
}

/// The most requests whose spans wait in the queue.
const WAITING: usize = 4096;
/// The most requests whose spans are sent in one batch.
const BATCH: usize = 256;
/// How long a batch waits for more spans.
const GATHERING: Duration = Duration::from_millis(500);
/// The time limit for one batch: connecting, sending and the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the process waits at its end for the last batches.
const FAREWELL: Duration = Duration::from_secs(2);
/// The most bytes of an answer of the collector, which usually has a few words.
const LONGEST_ANSWER: usize = 64 << 10;

impl SpanExporter {
    /// # Errors
    /// Returns an error if the machine cannot start a thread.
    pub(super) fn start(lost: IntCounter) -> io::Result<Self> {
        let (queue, receiver) = mpsc::channel(WAITING);
        let (alive, ended) = wait::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let counter = lost.clone();
        thread::Builder::new().name("spans".into()).spawn(move || {
            let _alive = alive;
            runtime.block_on(send_all(receiver, &counter));
        })?;
        Ok(Self { queue, lost, ended: Arc::new(Mutex::new(ended)) })
    }

    pub(super) fn for_traces(&self, traces: &Arc<TraceExportSettings>) -> PlanSpanExporter {
        PlanSpanExporter { exporter: self.clone(), to: traces.clone() }
    }

    pub(super) fn flush_spans(self) {
        let Self { queue, ended, .. } = self;
        drop(queue);
        let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        // The result does not matter: either the thread has ended, or its collector is too slow to wait for.
        ended.recv_timeout(FAREWELL).ok();
    }
}

impl PlanSpanExporter {
    pub(super) fn enqueue_spans(&self, exchange: &RequestTelemetryRecord) {
        let spans = spans_for(exchange);
        if spans.is_empty() {
            return;
        }
        if let Err(full) = self.exporter.queue.try_send(SpanExportItem { to: self.to.clone(), spans }) {
            self.exporter.lost.inc_by(full.into_inner().spans.len() as u64);
        }
    }
}

/// Sends all spans. Returns after the last sender was dropped and the queue is empty.
async fn send_all(mut receiver: mpsc::Receiver<SpanExportItem>, lost: &IntCounter) {
    let mut line = CollectorConnection::default();
    let mut batch = Vec::new();
    while receiver.recv_many(&mut batch, BATCH).await > 0 {
        let more = async { while batch.len() < BATCH && receiver.recv_many(&mut batch, 1).await > 0 {} };
        timeout(GATHERING, more).await.ok();
        // A batch has one collector, except after a reload that names another one.
        for same in batch.chunk_by(|one, next| one.to == next.to) {
            lost.inc_by(line.send(same).await);
        }
        batch.clear();
    }
}

/// The connection to the collector, and whether the last batch was accepted.
#[derive(Default)]
struct CollectorConnection {
    connection: Option<(String, Http1Connection<TcpStream>)>,
    fails: bool,
}

/// The reason for which a batch was not accepted.
#[derive(Debug, thiserror::Error)]
enum OtlpExportError {
    #[error("cannot connect to the collector")]
    Connect(#[from] io::Error),
    #[error("the connection to the collector broke")]
    Broken(#[from] hyper::Error),
    #[error("the collector answered {0}")]
    Refused(StatusCode),
    #[error("the answer of the collector cannot be read")]
    Unreadable,
}

impl CollectorConnection {
    /// Sends a batch, and returns how many spans were lost.
    async fn send(&mut self, batch: &[SpanExportItem]) -> u64 {
        let Some(to) = batch.first().map(|report| report.to.clone()) else { return 0 };
        let count = batch.iter().map(|report| report.spans.len() as u64).sum();
        let sent = timeout(PATIENCE, self.exchange(&to, encode_batch(&to, batch))).await;
        let (lost, error) = match sent {
            Ok(Ok(rejected)) => (rejected, None),
            Ok(Err(error)) => (count, Some(error.to_string())),
            Err(_elapsed) => (count, Some(format!("no answer within {PATIENCE:?}"))),
        };
        // Only a change is logged: a collector that is away fails for every batch.
        match (&error, self.fails) {
            (Some(error), false) => warn!(collector = to.collector, why = error, "spans.not_taken"),
            (None, true) => info!(collector = to.collector, "spans.taken_again"),
            _ => {}
        }
        self.fails = error.is_some();
        lost
    }

    /// Sends a batch over one connection, and returns how many spans the collector rejected.
    ///
    /// # Cancellation
    /// If the future is dropped, the connection is closed: a late answer would be taken for the answer to the next
    /// batch.
    async fn exchange(&mut self, to: &TraceExportSettings, batch: Bytes) -> Result<u64, OtlpExportError> {
        let mut line = match self.connection.take().filter(|(name, _)| *name == to.collector) {
            Some((_, line)) => line,
            None => connect(&to.collector).await?,
        };
        if !line.is_open() {
            line = connect(&to.collector).await?;
        }
        let request = Request::post("/v1/traces")
            .header(HOST, &to.collector)
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(batch))
            .expect("the plan holds an authority");
        let answer = line.exchange(request, LONGEST_ANSWER).await.map_err(|error| match error {
            ExchangeError::Broken(error) => OtlpExportError::Broken(error),
            ExchangeError::TooLong => OtlpExportError::Unreadable,
        })?;
        self.connection = Some((to.collector.clone(), line));
        if !answer.status().is_success() {
            return Err(OtlpExportError::Refused(answer.status()));
        }
        // An answer that cannot be read still means that the collector has accepted the spans.
        let answer = ExportTraceServiceResponse::decode(answer.into_body()).unwrap_or_default();
        let rejected = answer.partial_success.map_or(0, |partly| partly.rejected_spans);
        Ok(u64::try_from(rejected).unwrap_or_default())
    }
}

async fn connect(collector: &str) -> Result<Http1Connection<TcpStream>, OtlpExportError> {
    Ok(Http1Connection::handshake(TcpStream::connect(collector).await?).await?)
}

fn encode_batch(to: &TraceExportSettings, batch: &[SpanExportItem]) -> Bytes {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let scope = InstrumentationScope {
        name: "fencegate".to_owned(),
        version: VERSION.to_owned(),
        ..InstrumentationScope::default()
    };
    let spans = batch.iter().flat_map(|report| report.spans.iter().cloned()).collect();
    let attributes = [
        string_attribute("service.name", Some(&to.service_name)),
        string_attribute("service.version", Some(VERSION)),
    ];
    let resource = Resource { attributes: attributes.into_iter().flatten().collect(), ..Resource::default() };
    let spans = ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() };
    let spans =
        ResourceSpans { resource: Some(resource), scope_spans: vec![spans], ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![spans] }.encode_to_vec().into()
}
