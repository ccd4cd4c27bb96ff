//! Refuses requests beyond the limits in flight, of this worker or of one client at all workers, before any work is
//! done for them.

use std::rc::Rc;

use fencegate_http::client_quota::{ClientId, ClientQuotas};
use fencegate_refusal::{Refusal, RefusalReason};

use crate::{
    concurrency_limit::ConcurrencyLimit, frontend::RawRequest, handler::ShortCircuit,
    steps::trace::TracedRequest,
};

/// How many requests one client has in flight at most, over all workers.
#[derive(Debug, Clone)]
pub struct ClientConcurrencyLimit {
    pub shares: ClientQuotas,
    /// `None` for no limit.
    pub most: Option<usize>,
}

/// The exchange may outlive its client, and the answer may outlive the exchange. The request counts until both are
/// over.
pub fn limit_concurrency(limit: &ConcurrencyLimit, request: RawRequest) -> Result<RawRequest, ShortCircuit> {
    let Some(permit) = limit.try_acquire() else {
        return Err(Refusal::new(RefusalReason::Overloaded, "in-flight limit of the worker").into());
    };
    request.context.permit.get_or_init(|| Rc::new(permit));
    Ok(request)
}

/// Runs when the client is known. The client's count lasts as long as the request.
pub fn limit_per_client(
    limit: &ClientConcurrencyLimit,
    request: TracedRequest,
) -> Result<TracedRequest, ShortCircuit> {
    if let Some(most) = limit.most {
        let client = ClientId::from_ip(request.source.client);
        let permit = request.context.permit.get().expect("taken before anything else");
        let Some(share) = limit.shares.acquire_request(client, most) else {
            return Err(Refusal::new(RefusalReason::ClientLimit, "in-flight limit of one client").into());
        };
        permit.add_client_share(share);
    }
    Ok(request)
}
