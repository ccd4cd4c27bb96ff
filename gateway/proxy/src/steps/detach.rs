//! Detaches a fenced request from its client's connection. In the steps below this one, a client that disconnects
//! cancels nothing: the upstream may be at work, and the key must not be handed on before it has answered.
//!
//! As long as the client waits, the exchange runs in the task of the client's connection: a task of its own would
//! have to be created, woken and queued for each request. Only the rest of an exchange whose client disconnects
//! becomes a task.

use std::{
    any::Any,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use fencegate_http::body::Reply;
use fencegate_process::failpoint;
use fencegate_refusal::{Refusal, RefusalReason};
use futures_util::FutureExt;
use tokio::task::spawn_local;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use crate::{
    handler::Handler,
    steps::{
        bufferable::BufferableRequest,
        client_liveness::{ClientDisconnectWatch, ClientPresenceGuard, client_disconnect_channel},
    },
};

/// A request that goes on when its client disconnects. Steps that wait can still detect the disconnect.
pub struct DetachedRequest<R> {
    pub request: R,
    pub client: ClientDisconnectWatch,
}

/// Detaches a fenced request. Unfenced requests stay attached: they end when their client disconnects.
pub async fn detach<R: BufferableRequest + 'static, S: Handler<DetachedRequest<R>>>(
    running: &TaskTracker,
    request: R,
    next: &Rc<S>,
) -> Result<Reply, Refusal> {
    if !request.needs_full_body() || failpoint::is_disabled_by_test("rule_detach") {
        return next
            .handle(DetachedRequest { request, client: ClientDisconnectWatch::never_disconnecting() })
            .await;
    }
    let (here, client) = client_disconnect_channel();
    let request = DetachedRequest { request, client };
    let next = next.clone();
    let exchange = Box::pin(AssertUnwindSafe(async move { next.handle(request).await }).catch_unwind());
    let exchange = DetachedExchange { left: Some(exchange), here: Some(here), running: running.token() };
    exchange.await.unwrap_or_else(|panic| {
        Err(Refusal::new(
            RefusalReason::OutcomeUnknown,
            format!("the exchange failed: {}", panic_message(&*panic)),
        ))
    })
}

type ExchangeResult = Result<Result<Reply, Refusal>, Box<dyn Any + Send>>;

/// An exchange from its start to its end, whether or not its client waits.
struct DetachedExchange {
    /// `None` once the exchange is over.
    left: Option<Pin<Box<dyn Future<Output = ExchangeResult>>>>,
    here: Option<ClientPresenceGuard>,
    /// The exchange counts as running until this is dropped.
    running: TaskTrackerToken,
}

impl Future for DetachedExchange {
    type Output = ExchangeResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ExchangeResult> {
        let exchange = self.left.as_mut().expect("nobody asks for the answer twice");
        let ended = exchange.as_mut().poll(cx);
        if ended.is_ready() {
            self.left = None;
        }
        ended
    }
}

impl Drop for DetachedExchange {
    /// Runs when the client has disconnected: steps that wait are told so, and the rest of the exchange goes on in a
    /// task.
    fn drop(&mut self) {
        drop(self.here.take());
        if let Some(left) = self.left.take() {
            let running = self.running.clone();
            spawn_local(async move {
                // The client has left, so nobody receives the result.
                let _ended = left.await;
                drop(running);
            });
        }
    }
}

/// The message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without words")
}
