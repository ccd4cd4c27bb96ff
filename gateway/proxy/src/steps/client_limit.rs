//! Refuses requests beyond the limit in flight of one client, over all workers.

use fencegate_http::client_quota::{ClientId, ClientQuotas};
use fencegate_refusal::{Refusal, RefusalReason};

use crate::{handler::ShortCircuit, steps::trace::TracedRequest};

/// Limits the requests that one client has in flight, over all workers.
#[derive(Debug, Clone)]
pub struct ClientConcurrencyLimit {
    pub shares: ClientQuotas,
    /// `None` for no limit.
    pub most: Option<usize>,
}

/// Counts the request in the quota of its client, for as long as the request lasts. It runs after the client
/// is known.
pub(crate) fn limit_per_client(
    limit: &ClientConcurrencyLimit,
    traced: TracedRequest,
) -> Result<TracedRequest, ShortCircuit> {
    if let Some(most) = limit.most {
        let request = &traced.request;
        let client = ClientId::from_ip(request.source.client);
        let permit = request.context.permit.get().expect("taken before anything else");
        let Some(share) = limit.shares.acquire_request(client, most) else {
            return Err(Refusal::new(RefusalReason::ClientLimit, "in-flight limit of one client").into());
        };
        permit.add_client_share(share);
    }
    Ok(traced)
}
