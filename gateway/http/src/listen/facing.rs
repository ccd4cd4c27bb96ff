//! Serves one connection: hands each request to the [`Answers`].

use std::{convert::Infallible, future::ready, rc::Rc, time::Duration};

use hyper::{Request, body::Incoming, service::Service};

use super::responder::{Answered, Answers, Asked, Refused};
use crate::course::Course;
use crate::{
    body::{Body, Reply},
    buffered::HeadMemory,
    peer::Peer,
};

/// The service for one client's connection.
pub struct Facing {
    front: Rc<dyn Answers>,
    peer: Rc<Peer>,
    course: Rc<Course>,
    pause: Duration,
    memory: HeadMemory,
}

impl Facing {
    /// `pause`: how long a client may take for each piece of a request's body.
    pub fn new(
        front: Rc<dyn Answers>,
        peer: Peer,
        course: Rc<Course>,
        pause: Duration,
        memory: HeadMemory,
    ) -> Self {
        Self { front, peer: Rc::new(peer), course, pause, memory }
    }
}

impl Service<Request<Incoming>> for Facing {
    type Response = Reply;
    type Error = Infallible;
    type Future = Answered;

    fn call(&self, request: Request<Incoming>) -> Answered {
        let (exchange, answering) = self.course.begin();
        let http = request.map(|body| Body::from_client(body, exchange.clone(), self.pause));
        // Here and not in a step: one look at an HTTP/2 connection hands over all heads that have come, and steps run later.
        let Ok(head) = self.memory.hold(&http) else {
            let reply = self.front.refuse(Refused::NoRoom, Duration::ZERO);
            return Box::pin(ready(Ok(reply.map(|body| answering.with(body)))));
        };
        self.front.answer(Asked { http: Box::new(http), peer: self.peer.clone(), exchange, answering, head })
    }
}
