//! Refuses requests beyond the limits in flight, of this worker or of one client at all workers, before any work is
//! done for them.

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
    /// `None` for no limit.
    pub most: Option<usize>,
}

/// The exchange may outlive its client, and the answer may outlive the exchange. The request counts until both are
/// over.
pub fn limit(limit: &InFlight, request: Arrived) -> Result<Arrived, Stops> {
    let Some(permit) = limit.enter() else {
        return Err(Refusal::new(Reason::Overloaded, "in-flight limit of the worker").into());
    };
    request.notes.permit.get_or_init(|| Rc::new(permit));
    Ok(request)
}

/// Runs when the client is known. The client's count lasts as long as the request.
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
