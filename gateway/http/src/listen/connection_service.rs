//! Serves one connection: passes each request to the [`HttpHandler`].

use std::{convert::Infallible, future::ready, rc::Rc, time::Duration};

use hyper::{Request, body::Incoming, service::Service};

use super::handler::{HttpHandler, IncomingRequest, RequestRejection, ResponseFuture};
use crate::connection_state::ServerConnectionState;
use crate::{
    body::{Body, Reply},
    buffered::HeadMemory,
    connection_info::ConnectionInfo,
};

/// The service for one client's connection.
pub struct ConnectionService {
    handler: Rc<dyn HttpHandler>,
    peer: Rc<ConnectionInfo>,
    connection: Rc<ServerConnectionState>,
    pause: Duration,
    memory: HeadMemory,
}

impl ConnectionService {
    /// `pause`: how long a client may take for each chunk of a request's body.
    pub fn new(
        handler: Rc<dyn HttpHandler>,
        peer: ConnectionInfo,
        state: Rc<ServerConnectionState>,
        pause: Duration,
        memory: HeadMemory,
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
        // Here and not in a later step: one poll of an HTTP/2 connection delivers all heads that have come, and steps
        // run later.
        let Ok(head) = self.memory.reserve_read(&http) else {
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
