//! Refuses what is more than this worker can have in flight, before any work is done for it.

use std::{cell::Cell, rc::Rc};

use crate::{
    body::{Body, Reply},
    refusal::{Reason, Refusal},
    stage::Arrived,
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
pub struct Permit(Rc<Cell<usize>>);

impl InFlight {
    pub fn at_most(most: usize) -> Self {
        Self { count: Rc::default(), most }
    }

    /// The same count, for a plan with another limit.
    pub fn now_at_most(&self, most: usize) -> Self {
        Self { count: self.count.clone(), most }
    }

    fn enter(&self) -> Option<Permit> {
        let count = self.count.get();
        (count < self.most).then(|| {
            self.count.set(count + 1);
            Permit(self.count.clone())
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
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
