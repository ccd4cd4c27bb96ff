//! Serves one connection: passes each request to the [`HttpHandler`], and observes how the client takes the response.

use std::{convert::Infallible, future::ready, rc::Rc, task::Waker, time::Duration};

use hyper::{Request, body::Incoming, service::Service};

use super::handler::{HttpHandler, IncomingRequest, RequestRejection, ResponseFuture};
use crate::{
    body::{Body, BodyObserver, Reply},
    buffered::HeadMemoryBudget,
    connection_info::ConnectionInfo,
    connection_state::{ResponseTracker, ServerConnectionState},
};

/// The service for one client's connection.
pub struct ConnectionService {
    handler: Rc<dyn HttpHandler>,
    peer: Rc<ConnectionInfo>,
    connection: Rc<ServerConnectionState>,
    pause: Duration,
    memory: HeadMemoryBudget,
}

impl ConnectionService {
    /// `pause` is the longest time that a client may take for each chunk of a request's body.
    pub fn new(
        handler: Rc<dyn HttpHandler>,
        peer: ConnectionInfo,
        state: Rc<ServerConnectionState>,
        pause: Duration,
        memory: HeadMemoryBudget,
    ) -> Self {
        Self { handler, peer: Rc::new(peer), connection: state, pause, memory }
    }
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Reply;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> ResponseFuture {
        let (exchange, answering) = self.connection.begin_exchange();
        let http = request.map(|body| Body::from_client(body, exchange.clone(), self.pause));
        // The memory is reserved here and not in a later step: one poll of an HTTP/2 connection delivers all heads
        // that have come, before the steps of any of them run.
        let Ok(head) = self.memory.reserve_for_parsed_head(&http) else {
            let reply = self.handler.reject(RequestRejection::HeadMemoryExhausted, Duration::ZERO);
            return Box::pin(ready(Ok(reply.map(|body| answering.observe(body)))));
        };
        self.handler.handle(IncomingRequest {
            http: Box::new(http),
            peer: self.peer.clone(),
            exchange,
            tracker: answering,
            head,
        })
    }
}

impl ResponseTracker {
    /// Makes this tracker an observer of the response body.
    pub fn observe(self, mut body: Body) -> Body {
        if let Some(upgrade_sender) = body.take_upgrade_sender() {
            self.upgrade(upgrade_sender);
        }
        self.add_unsent(0);
        let body = if self.is_multiplexed() { body.with_max_chunk(PIECE) } else { body };
        body.with_observer(Box::new(self))
    }
}

/// The largest chunk of a response that is given to the HTTP/2 library: one frame. The library takes a whole chunk as
/// soon as the client's window has one byte, and then does not show how the client takes the rest of the chunk.
const PIECE: usize = 16 << 10;

impl BodyObserver for ResponseTracker {
    fn on_poll(&mut self, is_here: bool) {
        Self::record_poll(self, is_here);
    }

    fn on_data(&mut self, bytes: usize) {
        self.add_unsent(bytes);
    }

    fn check_flushed(&self, waker: &Waker) -> bool {
        Self::check_flushed(self, waker)
    }
}
