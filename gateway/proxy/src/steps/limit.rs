//! Refuses requests beyond the limit of requests in flight on this worker, before any work is done for them.

use std::rc::Rc;

use fencegate_refusal::{Refusal, RefusalReason};

use crate::{concurrency_limit::ConcurrencyLimit, frontend::RawRequest, handler::ShortCircuit};

/// Counts the request as in flight until exchange and answer are both over: the exchange may outlive its client,
/// and the answer may outlive the exchange.
pub(crate) fn limit_concurrency(
    limit: &ConcurrencyLimit,
    request: RawRequest,
) -> Result<RawRequest, ShortCircuit> {
    let Some(permit) = limit.try_acquire() else {
        return Err(Refusal::new(RefusalReason::Overloaded, "in-flight limit of the worker").into());
    };
    request.context.permit.get_or_init(|| Rc::new(permit));
    Ok(request)
}
