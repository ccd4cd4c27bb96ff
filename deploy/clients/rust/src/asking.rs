//! Asks a gateway for a lease.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use rustls::ClientConfig;
use tokio::sync::oneshot;

use crate::{
    gateway_line::{BadGateway, Gateway},
    held_lease::Lease,
    lease_clock::{BootTime, SharedLeaseClock},
    not_leased::NotLeased,
    renewing::{self, Applied},
    told_lease::AskedLease,
};

/// Asks one gateway, or a balancer before several: any gateway of an installation answers every question about a lease.
#[derive(Clone)]
pub struct Client {
    gateway: Arc<Gateway>,
    clock: SharedLeaseClock,
}

/// A lease that is wanted. Awaiting it asks for it; needs a runtime of tokio.
#[must_use = "nothing is asked before it is awaited"]
pub struct Wanted {
    client: Client,
    asked: AskedLease,
    notice: Option<Duration>,
}

impl Client {
    /// `url`: `http://host:port` of a gateway. `token`: what the file of the policy has that names this client. It crosses the
    /// network as it is: use [`Client::over_tls`] wherever others could listen.
    ///
    /// # Errors
    /// No URL of this form, or a token that fits into no field.
    pub fn new(url: &str, token: &str) -> Result<Self, BadGateway> {
        Ok(Self::at(Gateway::at(url, Some(token), None)?))
    }

    /// `url`: `https://host:port`. `tls` says whom to trust, and has the client's certificate where the policy names that.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn over_tls(url: &str, token: Option<&str>, tls: Arc<ClientConfig>) -> Result<Self, BadGateway> {
        Ok(Self::at(Gateway::at(url, token, Some(tls))?))
    }

    fn at(gateway: Gateway) -> Self {
        Self { gateway: Arc::new(gateway), clock: Arc::new(BootTime) }
    }

    #[cfg(test)]
    pub(crate) fn timed(self, clock: SharedLeaseClock) -> Self {
        Self { clock, ..self }
    }

    /// Exclusive, without a wait, for as long as the policy says unless told otherwise.
    pub fn lease(&self, key: impl Into<String>) -> Wanted {
        let keys = vec![key.into()];
        let asked =
            AskedLease { keys, mode: "exclusive", permits: None, ttl_ms: None, wait_ms: 0, note: None };
        Wanted { client: self.clone(), asked, notice: None }
    }
}

impl Wanted {
    /// Another key: all of them are held, or none. 16 at most.
    pub fn and(mut self, key: impl Into<String>) -> Self {
        self.asked.keys.push(key.into());
        self
    }

    /// Beside others that only read.
    pub fn shared(mut self) -> Self {
        self.asked.mode = "shared";
        self
    }

    /// So many may hold the key at once, 2 to 1000. All who ask for the key say the same number. One key alone has permits, and
    /// nobody holds it [`shared`](Self::shared).
    pub fn permits(mut self, permits: u16) -> Self {
        self.asked.permits = Some(permits);
        self
    }

    /// After so long without a renewal the gateway gives the lock to the next one. It is how long others wait when this
    /// process dies; the lease is renewed far more often.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.asked.ttl_ms = Some(millis(ttl));
        self
    }

    /// How long to wait for another holder. The policy has a bound, `max_wait`.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.asked.wait_ms = millis(wait);
        self
    }

    /// What others are told who ask who holds: an address, for instance.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.asked.note = Some(note.into());
        self
    }

    /// [`Lease::lost`] and the end of [`Lease::holds`] come so long before somebody else can hold: the time that the work
    /// needs to stop. A tenth of what the gateway has promised, unless said; never more than half of it.
    pub fn notice(mut self, notice: Duration) -> Self {
        self.notice = Some(notice);
        self
    }
}

/// Dropping the future gives up the place in the line. What was granted at that moment and not heard of ends after its ttl.
impl IntoFuture for Wanted {
    type Output = Result<Lease, NotLeased>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { client: Client { gateway, clock }, asked, notice } = self;
            let (told, answered) = oneshot::channel();
            // Of its own: a lease that is granted while its applicant goes is given back by it.
            drop(tokio::spawn(renewing::lease(Applied { gateway, clock, asked, notice }, told)));
            let ended = |_| NotLeased::Unanswered("the runtime has ended".into());
            answered.await.map_err(ended)?
        })
    }
}

/// Rounded down: never longer than it was said.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
