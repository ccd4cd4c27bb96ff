//! A connection that is checked out for one exchange, until it is returned or dropped.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::plan::Upstream;
use tokio::time::timeout;

use super::{
    address::{OutstandingExchange, ResolvedEndpoint},
    endpoint::EndpointCountGuard,
    endpoint_set::EndpointSet,
    gate::WriteGate,
    idle::IdlePool,
};
use crate::upstream::pooled_connection::PooledConnection;

/// A connection while it carries an exchange. If it is not returned to the pool, the drop closes it.
pub struct CheckedOutConnection {
    /// Boxed, because a checkout is moved through many steps with the response.
    pooled: Option<Box<PooledConnection>>,
    fleet: Arc<EndpointSet>,
    idle: Rc<IdlePool>,
    /// How long the connection may be idle after it was returned.
    keep: Duration,
    _busy: EndpointCountGuard,
    _outstanding: OutstandingExchange,
}

impl CheckedOutConnection {
    pub(super) fn new(
        pooled: Box<PooledConnection>,
        endpoint_set: Arc<EndpointSet>,
        idle: Rc<IdlePool>,
    ) -> Self {
        let keep = endpoint_set.upstream.idle;
        let busy = pooled.endpoint.count_busy();
        let outstanding = pooled.address.begin_exchange();
        Self { pooled: Some(pooled), fleet: endpoint_set, idle, keep, _busy: busy, _outstanding: outstanding }
    }

    pub fn pooled(&mut self) -> &mut PooledConnection {
        self.pooled.as_mut().expect("taken only when the lend ends")
    }

    fn pooled_ref(&self) -> &PooledConnection {
        self.pooled.as_ref().expect("taken only when the lend ends")
    }

    pub fn gate(&self) -> &Rc<WriteGate> {
        &self.pooled_ref().gate
    }

    /// The address of the other end and the name of its process; `None` if its identity was not checked.
    pub fn verified_process(&self) -> Option<(&ResolvedEndpoint, &Arc<str>)> {
        let pooled = self.pooled_ref();
        Some((&pooled.address, pooled.process.as_ref()?))
    }

    pub fn endpoint(&self) -> &Arc<str> {
        &self.pooled_ref().endpoint.name
    }

    pub fn endpoint_set(&self) -> &EndpointSet {
        &self.fleet
    }

    pub fn upstream(&self) -> &Upstream {
        &self.fleet.upstream
    }

    /// Records that the endpoint has answered.
    pub fn record_success(&self) {
        self.pooled_ref().endpoint.record_success();
        self.pooled_ref().address.liveness.record_response();
    }

    /// Records that the process at the endpoint can serve no request at present, and has not begun to serve this one.
    /// New requests go to other processes for a while, if there are any.
    pub fn avoid_endpoint_address(&self) {
        if !self.fleet.is_one_address() {
            self.pooled_ref().address.liveness.avoid_address();
        }
    }

    /// Records that the exchange failed because of the endpoint.
    pub fn record_failure(&self) {
        self.fleet.record_failure(&self.pooled_ref().endpoint);
    }

    /// Returns the connection to the pool if the exchange is over in both directions, as most are at the last byte of
    /// the response. Otherwise returns the checkout.
    pub(crate) fn try_return(mut self) -> Result<(), Self> {
        match self.pooled.take_if(|pooled| pooled.is_exchange_settled()) {
            Some(pooled) => {
                self.put_back(pooled);
                Ok(())
            }
            None => Err(self),
        }
    }

    /// Returns the connection to the pool when the exchange is over in both directions. If the upstream answers
    /// before it has read the whole request, the connection is closed after `patience`, and no further byte of the
    /// request is sent.
    pub(crate) async fn return_when_settled(mut self, patience: Duration) {
        let Some(mut pooled) = self.pooled.take() else { return };
        if !matches!(timeout(patience, pooled.wait_settled()).await, Ok(true)) {
            return;
        }
        self.put_back(pooled);
    }

    fn put_back(&self, mut pooled: Box<PooledConnection>) {
        pooled.gate.disarm();
        pooled.reused = true;
        self.idle.put(pooled, self.keep);
    }

    /// Limits the idle time of the connection to that of the upstream. Otherwise the upstream could close the
    /// connection just as a request is sent over it.
    pub fn limit_idle_time(&mut self, longest: Duration) {
        self.keep = self.keep.min(longest.saturating_sub(KEEP_MARGIN));
    }
}

/// An idle connection is closed on this side this much earlier than the other side closes it.
const KEEP_MARGIN: Duration = Duration::from_secs(1);
