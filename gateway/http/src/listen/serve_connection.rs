//! Serves one connection in the protocol that its client speaks, until it ends or is drained.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use fencegate_policies::{
    plan::{ListenerLimits, ListenerSettings, ListenerTimeouts},
    trusted_proxies::TrustedProxies,
};
use hyper::{
    rt::Executor,
    server::conn::{http1, http2},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    connection_limit::ConnectionSlot,
    connection_service::ConnectionService,
    detect::DetectedProtocol,
    handler::{HttpHandler, ListenerTimeLimit, RequestRejection},
    heads::IncomingHeadMemory,
    linger::{encode_http1_response, linger, write_and_linger},
    metrics::ClientConnectionMetrics,
    timed_io::TimedIo,
    wake_gated::PollOnWake,
};
use crate::body::hop_by_hop::LIBRARYS_MOST;
use crate::buffered::{HeadMemoryBudget, MemoryBudget};
use crate::connection_state::{ConnectionReadPhase, ServerConnectionState};
use crate::{
    client_quota::{ClientId, ClientQuotas},
    connection_info::ConnectionInfo,
    network::ResetOnClose,
    upgrade::{UpgradeSender, UpgradedIo},
};

/// The HTTP library, with the limits of a listener.
pub(super) struct HttpConnectionServer {
    http1: http1::Builder,
    http2: http2::Builder<LocalExecutor>,
    pub(super) timeouts: ListenerTimeouts,
    /// The memory for heads, and the counts of each client.
    budget: MemoryBudget,
    quotas: ClientQuotas,
    /// The bytes that the library may take for an HTTP/2 head that is not complete.
    unfinished: usize,
    /// The proxies whose connections carry heads of many clients, which count for no single client.
    proxies: TrustedProxies,
}

/// The parts that the connections of one listener share.
pub(super) struct ListenerConnectionContext<'c> {
    pub(super) handler: &'c Rc<dyn HttpHandler>,
    pub(super) metrics: &'c Rc<ClientConnectionMetrics>,
    pub(super) drain: &'c CancellationToken,
}

impl HttpConnectionServer {
    pub(super) fn new(listener: &ListenerSettings, budget: MemoryBudget, quotas: ClientQuotas) -> Self {
        let limits = &listener.limits;
        let mut http1 = http1::Builder::new();
        http1
            // The library's own time limit is off, because this proxy has one and answers the client itself.
            .header_read_timeout(None)
            .max_buf_size(limits.max_header.max(LEAST_BUFFER));
        if limits.max_fields > LIBRARYS_MOST {
            // The library accepts a few fields more than this proxy serves, so that a client with too many fields gets
            // the refusal of this proxy.
            http1.max_headers(limits.max_fields + SPARE_FIELDS);
        }
        Self {
            http1,
            http2: http2_builder(limits),
            timeouts: listener.timeouts.clone(),
            budget,
            quotas,
            unfinished: UNFINISHED * (limits.max_header + SPARE_HEADER),
            proxies: listener.trusted.clone(),
        }
    }

    fn head_memory(&self, peer: &ConnectionInfo) -> HeadMemoryBudget {
        let address = peer.address.ip();
        let whose =
            (!self.proxies.is_proxy(address)).then(|| (self.quotas.clone(), ClientId::from_ip(address)));
        HeadMemoryBudget::new(self.budget.clone(), whose)
    }

    /// Serves until the client closes the connection; during a drain, until the requests that have begun are answered.
    pub(super) async fn serve<I>(
        &self,
        protocol: DetectedProtocol,
        stream: I,
        peer: ConnectionInfo,
        slot: &ConnectionSlot,
        context: ListenerConnectionContext<'_>,
    ) -> hyper::Result<()>
    where
        I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
    {
        let ListenerConnectionContext { handler, metrics, drain } = context;
        let state = match protocol {
            DetectedProtocol::Http1 => ServerConnectionState::new_http1(Instant::now()),
            DetectedProtocol::Http2 => ServerConnectionState::new_http2(),
        };
        slot.set_connection_state(&state);
        // `memory` and `peer` move out of this block, so that the future of an idle connection has no space for them.
        let (facing, heads) = {
            let memory = self.head_memory(&peer);
            let heads = IncomingHeadMemory::new(protocol, &memory, self.unfinished);
            let pause = self.timeouts.request_body;
            (ConnectionService::new(handler.clone(), peer, state.clone(), pause, memory), heads)
        };
        let timeouts = self.timeouts.clone();
        let paced = TimedIo::new(stream, state.clone(), timeouts, handler.clone(), metrics.clone(), heads);
        let stream = TokioIo::new(paced);
        let state = &*state;
        // The future of each version has a box, so that a connection takes memory only for the version of HTTP that it
        // speaks.
        match protocol {
            DetectedProtocol::Http1 => {
                let connection = self.http1.serve_connection(stream, facing);
                Box::pin(serve_http1(connection, state, slot, &**handler, drain)).await
            }
            DetectedProtocol::Http2 => {
                let connection = self.http2.serve_connection(stream, facing);
                Box::pin(self.serve_http2(connection, state, slot, metrics, drain)).await
            }
        }
    }

    /// Serves an HTTP/2 connection until it ends.
    async fn serve_http2<I>(
        &self,
        connection: Http2<I>,
        state: &ServerConnectionState,
        slot: &ConnectionSlot,
        metrics: &ClientConnectionMetrics,
        drain: &CancellationToken,
    ) -> hyper::Result<()>
    where
        I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
    {
        let mut connection = std::pin::pin!(connection);
        let mut patience = PARTING;
        let neglected = tokio::select! {
            biased;
            () = slot.wait_slot_reassigned() => {
                patience = DISPLACED;
                None
            }
            ended = connection.as_mut() => return ended,
            limit = wait_timeout(state, &self.timeouts) => Some(limit),
            () = drain.cancelled() => None,
        };
        if let Some(limit) = neglected {
            metrics.record_timeout(limit);
            if limit == ListenerTimeLimit::ResponseWrite {
                state.request_connection_reset();
                return Ok(());
            }
        }
        // This sends GOAWAY. Requests that arrive before the client has read it are still answered.
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = wait_close_timeout(state, &self.timeouts, patience) => Ok(()),
        }
    }
}

type Http1<I> = http1::Connection<TokioIo<TimedIo<I>>, ConnectionService>;
type Http2<I> = http2::Connection<TokioIo<TimedIo<I>>, ConnectionService, LocalExecutor>;

/// Serves an HTTP/1 connection until it ends, or switches protocols.
async fn serve_http1<I>(
    mut connection: Http1<I>,
    state: &ServerConnectionState,
    slot: &ConnectionSlot,
    handler: &dyn HttpHandler,
    drain: &CancellationToken,
) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
{
    let served = tokio::select! {
        // The loss of the slot is polled first: after it no more bytes are read.
        biased;
        () = slot.wait_slot_reassigned() => None,
        served = serve_requests_and_close(&mut connection, drain) => Some(served),
    };
    // The futures that close a connection are boxed, so that an open connection does not need memory for them.
    match served {
        None => Box::pin(close_displaced_connection(connection, state, handler)).await,
        Some(Ok(())) => {
            if let Some(upgrade_sender) = state.take_upgrade_sender() {
                Box::pin(hand_over_upgrade(connection, upgrade_sender)).await;
            }
        }
        Some(Err(error)) => {
            Box::pin(close_broken_connection(connection, state)).await;
            return Err(error);
        }
    }
    Ok(())
}

/// Serves all requests, writes the rest, and closes the stream, unless it switches protocols.
async fn serve_requests_and_close<I>(
    connection: &mut Http1<I>,
    drain: &CancellationToken,
) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
{
    serve_requests(connection, drain).await?;
    connection.await
}

/// Closes a connection that has lost its slot. Its responses are all written, but a reset could destroy bytes that the
/// client has not read yet, so it is closed in order.
async fn close_displaced_connection<I>(
    connection: Http1<I>,
    state: &ServerConnectionState,
    handler: &dyn HttpHandler,
) where
    I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
{
    let reading = state.reading();
    let Some(stream) = connection.into_parts().io.into_inner().into_inner() else { return };
    match reading {
        ConnectionReadPhase::Head(since) => {
            let refusal = handler.reject(RequestRejection::Displaced, since.elapsed());
            write_and_linger(stream, encode_http1_response(&refusal)).await;
        }
        ConnectionReadPhase::Idle(_) | ConnectionReadPhase::Busy => linger(stream).await,
    }
}

/// Closes a connection whose last response broke off. The written part has to arrive: a client that gets no byte
/// assumes that its request never arrived, and sends it again. If the client is still sending, closing would cause a
/// reset, so its bytes are read for a moment.
async fn close_broken_connection<I>(connection: Http1<I>, state: &ServerConnectionState)
where
    I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
{
    if state.is_reset_requested() {
        return;
    }
    if let Some(stream) = connection.into_parts().io.into_inner().into_inner() {
        write_and_linger(stream, Bytes::new()).await;
    }
}

/// Answers all requests of an HTTP/1 connection.
async fn serve_requests<I>(connection: &mut Http1<I>, drain: &CancellationToken) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
{
    tokio::select! {
        // The connection is polled before the drain, so that a request that has already arrived is answered.
        biased;
        ended = run_without_shutdown(connection) => return ended,
        () = PollOnWake::new(drain.cancelled()) => {}
    }
    // A last request may be on its way. Its response tells the client to close, and then the connection ends.
    tokio::select! {
        ended = run_without_shutdown(connection) => return ended,
        () = sleep(LAST_REQUEST) => {}
    }
    Pin::new(&mut *connection).graceful_shutdown();
    run_without_shutdown(connection).await
}

fn run_without_shutdown<I>(connection: &mut Http1<I>) -> impl Future<Output = hyper::Result<()>>
where
    I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
{
    poll_fn(|cx| connection.poll_without_shutdown(cx))
}

/// Hands the stream over after a switch of protocols. The connection keeps its slot until the receiver drops the
/// stream.
async fn hand_over_upgrade<I>(connection: Http1<I>, upgrade_sender: UpgradeSender)
where
    I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
{
    let parts = connection.into_parts();
    let Some(stream) = parts.io.into_inner().into_inner() else { return };
    let (held, let_go) = oneshot::channel();
    let switched = UpgradedIo { stream: Box::new(stream), first: parts.read_buf, held: Some(held) };
    // If the receiver has gone, the send fails, and the stream is dropped and closed.
    drop(upgrade_sender.send(switched));
    // Nothing is ever sent over this channel. The wait ends with an error when the stream's holder is dropped.
    let_go.await.ok();
}

/// How long an idle HTTP/1 connection stays open for one more request when the process stops. If it were closed at once
/// while a request is on its way, the client could not tell whether that request was served.
pub(super) const LAST_REQUEST: Duration = Duration::from_millis(500);

/// Returns when an HTTP/2 connection was idle for too long, or its client took nothing of a response for too long. The
/// checks are periodic, at least four in each time limit, so that no request needs a timer.
async fn wait_timeout(state: &ServerConnectionState, timeouts: &ListenerTimeouts) -> ListenerTimeLimit {
    let look = timeouts.idle.min(timeouts.response_write) / 4;
    let too_often = |limit: Duration| limit.div_duration_f64(look).ceil();
    let idle = too_often(timeouts.idle);
    let stuck = too_often(timeouts.response_write);
    let mut without = 0.0;
    loop {
        sleep(look).await;
        let under_way = state.snapshot();
        without = if under_way.exchanges == 0 && !under_way.unsent { without + 1.0 } else { 0.0 };
        if f64::from(under_way.not_taken) > stuck {
            return ListenerTimeLimit::ResponseWrite;
        }
        if without > idle {
            return ListenerTimeLimit::Idle;
        }
    }
}

/// Returns when the client was told to close, waits for no response, and has not closed in time.
async fn wait_close_timeout(state: &ServerConnectionState, timeouts: &ListenerTimeouts, patience: Duration) {
    let timeouts = ListenerTimeouts { idle: patience.min(timeouts.idle), ..timeouts.clone() };
    if wait_timeout(state, &timeouts).await == ListenerTimeLimit::ResponseWrite {
        state.request_connection_reset();
    }
}

/// Configures HTTP/2 with bounded memory: unread bodies take at most `STREAM_WINDOW` for each request in flight, and
/// unwritten responses at most `SEND_BUFFER`. With the default limits that is less than a gigabyte, and only an attack
/// reaches it. Buffered bodies and large heads have a budget of their own (`crate::buffered`). The window is not
/// adaptive, because clients could make it as large as they like.
fn http2_builder(limits: &ListenerLimits) -> http2::Builder<LocalExecutor> {
    let mut http2 = http2::Builder::new(LocalExecutor);
    http2
        .timer(TokioTimer::new())
        .adaptive_window(false)
        .initial_connection_window_size(connection_window(limits.streams))
        .initial_stream_window_size(STREAM_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_concurrent_streams(u32::try_from(limits.streams).unwrap_or(u32::MAX))
        // This also bounds the CONTINUATION frames of a head: to five, or a quarter more than the head needs.
        .max_header_list_size(u32::try_from(limits.max_header + SPARE_HEADER).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(LOCAL_RESETS)
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_ANSWER);
    http2
}

const SPARE_FIELDS: usize = 156;
/// The bytes above this proxy's own limit for a head that the HTTP library accepts: beyond them it answers by itself,
/// without a reason.
const SPARE_HEADER: usize = 16 << 10;
/// A head of many small fields takes this many times its size while the HTTP library reads it.
const UNFINISHED: usize = 4;
/// The smallest buffer that the HTTP library accepts.
const LEAST_BUFFER: usize = 8192;
const STREAM_WINDOW: u32 = 64 << 10;
/// The part of a connection's window beyond what its streams may leave unread.
const SPARE_WINDOW: u32 = 512 << 10;
/// The largest window of the protocol (RFC 9113, 6.9.1).
const LARGEST_WINDOW: u32 = (1 << 31) - 1;
const SEND_BUFFER: usize = 32 << 10;
/// The most streams that the client has reset before they were served; with more the connection is closed
/// (CVE-2023-44487).
const PENDING_RESETS: usize = 20;
/// The most streams that the server had to reset because the client broke the protocol; with more the connection is
/// closed (CVE-2025-8671).
const LOCAL_RESETS: usize = 256;
/// The time after the last frame at which a ping checks whether the client still answers.
const PING_AFTER: Duration = Duration::from_secs(20);
const PING_ANSWER: Duration = Duration::from_secs(10);
/// How long a client has to close its connection after it was told to.
const PARTING: Duration = Duration::from_secs(4);
/// How long a client has to close its connection after the connection has lost its slot.
const DISPLACED: Duration = Duration::from_secs(1);

/// The flow-control window of a connection. Bodies stay unread while their requests wait for a lock or a slow upstream,
/// and unread bytes also use up the connection's window. So it has to be larger than all streams together can use up.
/// Otherwise no byte could come for the stream that holds the lock, and its body would end with a timeout.
fn connection_window(streams: usize) -> u32 {
    let streams = u32::try_from(streams).unwrap_or(u32::MAX);
    streams.saturating_mul(STREAM_WINDOW).saturating_add(SPARE_WINDOW).min(LARGEST_WINDOW)
}

/// Runs each stream of an HTTP/2 connection as a task of the same thread.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output: 'static> + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(stream);
    }
}
