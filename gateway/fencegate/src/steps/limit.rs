//! Refuses what is more than this worker, or one client at all of them, can have in flight, before any work is done for
//! it.

use std::rc::Rc;

use fencegate_http::share::{Client, Shares};

use crate::{
    front::Arrived,
    in_flight::InFlight,
    refusal::{Reason, Refusal},
    step::Stops,
    steps::hygiene::Clean,
};

/// How many requests one client has in flight at most, over all workers.
#[derive(Debug, Clone)]
pub struct PerClient {
    pub shares: Shares,
    /// `None`: as many as it likes.
    pub most: Option<usize>,
}

/// The exchange may go on when its client has gone, and its answer when the exchange is over: it counts as long as any of
/// both does.
pub fn limit(limit: &InFlight, request: Arrived) -> Result<Arrived, Stops> {
    let Some(permit) = limit.enter() else {
        return Err(Refusal::new(Reason::Overloaded, "in-flight limit of the worker").into());
    };
    request.notes.permit.get_or_init(|| Rc::new(permit));
    Ok(request)
}

/// Who the client is, is known by now. It is counted for as long as its request is.
pub fn per_client(limit: &PerClient, request: Clean) -> Result<Clean, Stops> {
    if let Some(most) = limit.most {
        let notes = &request.request.notes;
        let client = Client::at(notes.client.get().expect("set where the client is named"));
        let permit = notes.permit.get().expect("taken before anything else");
        let Some(share) = limit.shares.in_flight(client, most) else {
            return Err(Refusal::new(Reason::ClientLimit, "in-flight limit of one client").into());
        };
        permit.share(share);
    }
    Ok(request)
}
