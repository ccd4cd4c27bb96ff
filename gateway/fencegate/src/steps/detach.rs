//! Cuts a fenced request loose from its client's connection. Below it, a client that hangs up cancels nothing: the
//! upstream may be at work, and the key must not be given on before it has answered.

use std::rc::Rc;

use fencegate_http::body::Reply;
use tokio_util::task::TaskTracker;

use crate::{
    refusal::{Reason, Refusal},
    step::Serve,
    steps::{
        incoming::Incoming,
        presence::{WaitingClient, presence},
    },
};

/// No longer cancelled by its client's going away; who waits can still see it.
pub struct Detached<R> {
    pub request: R,
    pub client: WaitingClient,
}

/// Unfenced requests stay attached: for them a client that goes away is a reason to stop working.
pub async fn detach<R: Incoming + 'static, S: Serve<Detached<R>>>(
    running: &TaskTracker,
    request: R,
    next: &Rc<S>,
) -> Result<Reply, Refusal> {
    if !request.is_fenced() {
        return next.serve(Detached { request, client: WaitingClient::attached() }).await;
    }
    let (here, client) = presence();
    let request = Detached { request, client };
    let next = next.clone();
    let exchange = running.spawn_local(async move { next.serve(request).await });
    let reply = exchange.await;
    drop(here);
    reply.unwrap_or_else(|failed| {
        Err(Refusal::new(Reason::OutcomeUnknown, format!("the exchange failed: {failed}")))
    })
}
