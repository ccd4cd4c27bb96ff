//! Refuses what is more than this worker, or one client at all of them, can have in flight, before any work is done for
//! it.

use std::{
    cell::{Cell, OnceCell},
    rc::Rc,
};

use fencegate_http::{
    body::{Body, Reply},
    share::{Client, Share, Shares},
};

use crate::{
    refusal::{Reason, Refusal},
    stage::{Arrived, Clean},
    step::Serve,
};

/// How many requests one worker has in flight at most.
#[derive(Debug, Clone)]
pub struct InFlight {
    count: Rc<Cell<usize>>,
    most: usize,
}

/// One request in flight, until its answer has left in full.
#[derive(Debug)]
pub struct Permit {
    count: Rc<Cell<usize>>,
    /// The same of its client, where that is limited.
    client: OnceCell<Share>,
}

/// How many requests one client has in flight at most, over all workers.
#[derive(Debug, Clone)]
pub struct PerClient {
    pub shares: Shares,
    /// `None`: as many as it likes.
    pub most: Option<usize>,
}

impl InFlight {
    pub fn at_most(most: usize) -> Self {
        Self { count: Rc::default(), most }
    }

    /// The same count, for a plan with another limit.
    pub fn now_at_most(&self, most: usize) -> Self {
        Self { count: self.count.clone(), most }
    }

    pub(crate) fn enter(&self) -> Option<Permit> {
        let count = self.count.get();
        (count < self.most).then(|| {
            self.count.set(count + 1);
            Permit { count: self.count.clone(), client: OnceCell::new() }
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
    }
}

pub async fn limit<S: Serve<Arrived>>(
    limit: &InFlight,
    request: Arrived,
    next: &S,
) -> Result<Reply, Refusal> {
    let Some(permit) = limit.enter() else {
        return Err(Refusal::new(Reason::Overloaded, "in-flight limit of the worker"));
    };
    // The exchange may go on when its client has gone: it counts as long as anything of it does.
    let permit = Rc::new(permit);
    request.notes.permit.get_or_init(|| permit.clone());
    let reply = next.serve(request).await?;
    Ok(reply.map(|body: Body| body.holding(permit)))
}

/// Who the client is, is known by now. It is counted for as long as its request is.
pub async fn per_client<S: Serve<Clean>>(
    limit: &PerClient,
    request: Clean,
    next: &S,
) -> Result<Reply, Refusal> {
    if let Some(most) = limit.most {
        let notes = &request.request.notes;
        let client = Client::at(notes.client.get().expect("set where the client is named"));
        let permit = notes.permit.get().expect("taken before anything else");
        let Some(share) = limit.shares.in_flight(client, most) else {
            return Err(Refusal::new(Reason::ClientLimit, "in-flight limit of one client"));
        };
        permit.client.get_or_init(|| share);
    }
    next.serve(request).await
}
