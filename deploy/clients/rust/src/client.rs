//! Requests a lease from a gateway.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use rustls::ClientConfig;
use tokio::sync::{oneshot, watch};

use crate::{
    error::AcquireError,
    gateway_connection::{ClientConfigError, GatewaySet, GatewayUrl},
    lease::Lease,
    lease_clock::{BootClock, SharedLeaseClock},
    lease_json::LeaseRequestBody,
    renewal::{self, LeaseOptions, OpenLease, PendingLeaseRequest},
};

/// A client of one gateway, of several, or of a balancer in front of them: any gateway of an installation answers every
/// question about a lease.
#[derive(Clone)]
pub struct Client {
    gateways: Arc<GatewaySet>,
    clock: SharedLeaseClock,
    /// The number of leases whose task has not ended.
    open: Arc<watch::Sender<usize>>,
}

/// A request for a lease, which is sent when it is awaited. Needs a tokio runtime.
#[must_use = "nothing is asked before it is awaited"]
pub struct LeaseRequest {
    client: Client,
    asked: LeaseRequestBody,
    options: LeaseOptions,
}

impl Client {
    /// `url`: `http://host:port` of a gateway. `token`: the content of the token file that the policy names for this
    /// client. The token crosses the network in plain text, so use [`Client::over_tls`] on a network that is not
    /// trusted.
    ///
    /// # Errors
    /// Returns an error if the URL does not have this form, or the token cannot be sent in a header field.
    pub fn new(url: &str, token: &str) -> Result<Self, ClientConfigError> {
        Self::with_gateways(&[GatewayUrl::parse(url)?], Some(token.as_bytes()), None)
    }

    /// `url`: `https://host:port`. `tls`: the trusted authorities, and the client's certificate if the policy demands
    /// one.
    ///
    /// # Errors
    /// Returns an error if the URL does not have this form, or the token cannot be sent in a header field.
    pub fn over_tls(
        url: &str,
        token: Option<&str>,
        tls: Arc<ClientConfig>,
    ) -> Result<Self, ClientConfigError> {
        let url = GatewayUrl::parse(url)?;
        if !url.is_tls() {
            return Err(ClientConfigError::Scheme);
        }
        Self::with_gateways(&[url], token.map(str::as_bytes), Some(tls))
    }

    /// A client of all gateways of one installation. If one gateway does not answer, or has no result, the request goes
    /// to the next one. `tls`: used for the gateways whose URL begins with `https`.
    ///
    /// # Errors
    /// Returns an error if `gateways` is empty, if a URL begins with `https` and `tls` is `None`, or if the token
    /// cannot be sent in a header field.
    pub fn with_gateways(
        gateways: &[GatewayUrl],
        token: Option<&[u8]>,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, ClientConfigError> {
        let gateways = Arc::new(GatewaySet::new(gateways, token, tls.as_ref())?);
        Ok(Self { gateways, clock: Arc::new(BootClock), open: Arc::default() })
    }

    #[cfg(test)]
    pub(crate) fn timed(self, clock: SharedLeaseClock) -> Self {
        Self { clock, ..self }
    }

    /// Requests a lease of `key`. Default: exclusive, without a wait, and with the policy's default ttl.
    pub fn lease(&self, key: impl Into<String>) -> LeaseRequest {
        let keys = vec![key.into()];
        let asked = LeaseRequestBody {
            keys,
            mode: "exclusive",
            permits: None,
            ttl_ms: None,
            wait_ms: None,
            note: None,
        };
        LeaseRequest { client: self.clone(), asked, options: LeaseOptions::default() }
    }

    /// Waits until no request for a lease is open and no lease is held: each dropped lease has been released, or its
    /// release has failed.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub async fn wait_released(&self) {
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open == 0).await.expect("we have its sender");
    }
}

impl LeaseRequest {
    /// Adds another key, up to 64. The lease holds all of its keys or none.
    pub fn and(mut self, key: impl Into<String>) -> Self {
        self.asked.keys.push(key.into());
        self
    }

    /// Requests a shared lease. Several shared leases may hold a key at once.
    pub fn shared(mut self) -> Self {
        self.asked.mode = "shared";
        self
    }

    /// Requests one of the `permits` of the key, 2 to 1000: that many leases may hold the key at once. All requests for
    /// the key have to name the same number. Only for a single key, and not together with [`shared`](Self::shared).
    pub fn permits(mut self, permits: u16) -> Self {
        self.asked.permits = Some(permits);
        self
    }

    /// The time for which the lease lives without a renewal. If this process dies, other clients wait this long for the
    /// lock. The client renews the lease far more often.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.asked.ttl_ms = Some(millis(ttl));
        self
    }

    /// The longest time to wait while another client holds the key. The policy limits it by `max_wait`.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.asked.wait_ms = Some(millis(wait));
        self
    }

    /// Waits in the queue with a lease that is renewed meanwhile. Such a wait may be longer than `max_wait` of the
    /// policy, and survives the end of a connection and a change of the gateway. `None`: waits without a limit.
    pub fn queued(mut self, longest: Option<Duration>) -> Self {
        self.options.queue = Some(longest);
        self
    }

    /// Follows the lease over a second connection, so that its end and its revocation are known at once and not only
    /// with the next renewal.
    pub fn watched(mut self) -> Self {
        self.options.watched = true;
        self
    }

    /// Renews the lease until it is released, even after it was lost because no answer came in time. A lost lease is
    /// never held again; but as long as the lease is renewed, the gateway gives the lock to no other client, because
    /// the work under the lease may still be running.
    pub fn kept_until_released(mut self) -> Self {
        self.options.kept_until_released = true;
        self
    }

    /// A note that other clients see with the holder of the lease: an address, for instance.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.asked.note = Some(note.into());
        self
    }

    /// How long the work needs to stop. [`Lease::lost`] returns, and [`Lease::is_held`] becomes false, this long before
    /// another client can hold. Default: a tenth of the time that the gateway has promised; never more than half of
    /// it.
    pub fn notice(mut self, notice: Duration) -> Self {
        self.options.notice = Some(notice);
        self
    }
}

/// Dropping the future leaves the queue. A lease that is granted at that very moment ends after its ttl.
impl IntoFuture for LeaseRequest {
    type Output = Result<Lease, AcquireError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { client: Client { gateways, clock, open }, asked, options } = self;
            let open = OpenLease::new(&open);
            let (told, answered) = oneshot::channel();
            // A task of its own sends the request. If the lease is granted while the caller drops the future, the task
            // releases the lease.
            let pending = PendingLeaseRequest { gateways, clock, asked, options };
            drop(tokio::spawn(renewal::lease(pending, told, open)));
            let ended = |_| AcquireError::Unanswered("the runtime has ended".into());
            answered.await.map_err(ended)?
        })
    }
}

/// Whole milliseconds, rounded down, so that no time limit gets longer.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
