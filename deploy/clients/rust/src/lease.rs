//! A held lease, as the program that works under it sees it.

use std::{fmt, future::Future, marker::PhantomData, sync::Arc, time::Duration};

use http::HeaderValue;
use tokio::sync::oneshot;

use crate::{
    error::ReleaseError,
    lease_state::{LeaseLostError, SharedLeaseState},
};

/// A lock that is held through a gateway, and renewed in the background. Dropping it gives it back in the background.
#[must_use = "it is given back when it is dropped"]
pub struct Lease {
    pub(crate) word: Arc<SharedLeaseState>,
    pub(crate) told: LeaseIdentity,
    /// Makes the renewing task release the lease: by sending a sender for the result, or by being dropped.
    pub(crate) back: Option<oneshot::Sender<Releasing>>,
}

/// The sender for the result of a release.
pub(crate) type Releasing = oneshot::Sender<Result<(), ReleaseError>>;

/// The public reference of a lease, and its secret id.
#[derive(Clone)]
pub(crate) struct LeaseHandle {
    pub(crate) reference: Arc<str>,
    pub(crate) id: HeaderValue,
}

/// The facts about a held lease that never change.
#[derive(Clone)]
pub(crate) struct LeaseIdentity {
    pub(crate) handle: LeaseHandle,
    pub(crate) token: Arc<str>,
    pub(crate) number: u64,
    pub(crate) permit: Option<u16>,
}

/// The fencing token of a lease. It borrows the lease, so it cannot be used after the lease.
///
/// ```compile_fail,E0505
/// # async fn kept(lease: fencegate_client::Lease) {
/// let token = lease.token().expect("held");
/// lease.release().await.expect("given back");
/// println!("{token}");
/// # }
/// ```
pub struct Token<'lease> {
    token: Arc<str>,
    number: u64,
    ticket: Option<Arc<str>>,
    lease: PhantomData<&'lease Lease>,
}

impl Lease {
    /// Whether no other client can hold the lock at this moment. After a pause of this process the result may be
    /// outdated. So present [`Lease::token`] to a service that compares tokens, or stop within [`Lease::remaining`].
    pub fn is_held(&self) -> bool {
        self.word.remaining().is_ok()
    }

    /// The former name of [`is_held`](Self::is_held).
    #[deprecated(since = "0.1.0", note = "renamed to `is_held`")]
    pub fn holds(&self) -> bool {
        self.is_held()
    }

    /// The time from now in which no other client can hold the lock, by the latest answer of the gateway. Use it as a
    /// time limit for one piece of work.
    ///
    /// # Errors
    /// Returns an error if the lease is lost.
    pub fn remaining(&self) -> Result<Duration, LeaseLostError> {
        self.word.remaining()
    }

    /// The moment until which no other client can hold the lock, by the latest answer of the gateway, as a time of
    /// CLOCK_BOOTTIME, so that other processes of this machine can compare it. Each renewal moves it forward.
    ///
    /// # Errors
    /// Returns an error if the lease is lost.
    pub fn held_until(&self) -> Result<Duration, LeaseLostError> {
        self.word.remaining()?;
        Ok(self.word.until().since_boot())
    }

    /// The token for a service that compares tokens.
    ///
    /// # Errors
    /// Returns an error if the lease is lost.
    pub fn token(&self) -> Result<Token<'_>, LeaseLostError> {
        let ticket = self.word.ticket();
        self.word.remaining()?;
        let LeaseIdentity { token, number, .. } = &self.told;
        Ok(Token { token: token.clone(), number: *number, ticket, lease: PhantomData })
    }

    /// Completes when the lease is lost: by the [notice](crate::LeaseRequest::notice) before another client can hold
    /// the lock. A lost lease is never held again. The future may outlive the lease.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub fn lost(&self) -> impl Future<Output = LeaseLostError> + Send + use<> {
        let word = self.word.clone();
        async move { word.lost().await }
    }

    /// Completes when an operator revokes the lease, with the reason; with `None` if the lease is lost before. The
    /// lease is held until it is released. A revocation is seen at the next renewal, after a sixth of the promised
    /// time, or at once if the lease is [watched](crate::LeaseRequest::watched).
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub fn revoked(&self) -> impl Future<Output = Option<Arc<str>>> + Send + use<> {
        let word = self.word.clone();
        async move { word.revoked().await }
    }

    /// Whether an operator has revoked the lease, by the latest answer of the gateway.
    pub fn is_revoked(&self) -> bool {
        self.word.is_revoked()
    }

    /// Runs `work` while the lease is held. If the lease is lost, the work is dropped at its next await.
    ///
    /// # Errors
    /// Returns an error if the lease was lost before the work was done.
    ///
    /// # Cancellation
    /// Dropping the future drops the work; the lease goes on.
    pub async fn during<W: Future>(&self, work: W) -> Result<W::Output, LeaseLostError> {
        tokio::select! {
            // The loss is checked first: work that ends after the loss of the lease must not be reported as done.
            biased;
            lost = self.word.lost() => Err(lost),
            done = work => Ok(done),
        }
    }

    /// The number of the permit that the lease holds, counted from 0; `None` for a key with one holder at a time.
    /// Guards and services see the key as `KEY#PERMIT`.
    pub fn permit(&self) -> Option<u16> {
        self.told.permit
    }

    /// The name of the lease in lists and logs.
    pub fn reference(&self) -> &str {
        &self.told.handle.reference
    }

    /// The value of the field [`FENCING_LEASE`](crate::FENCING_LEASE) for requests under the lease. The gateway itself
    /// checks whether the lease is held. The value is a secret, and marked as sensitive.
    pub fn header_value(&self) -> HeaderValue {
        self.told.handle.id.clone()
    }

    /// The former name of [`header_value`](Self::header_value).
    #[deprecated(since = "0.1.0", note = "renamed to `header_value`")]
    pub fn shown(&self) -> HeaderValue {
        self.header_value()
    }

    /// Releases the lease. The lease counts as not held from this call on.
    ///
    /// # Errors
    /// Returns an error if the gateway did not confirm the release. Then the lease ends by itself after its ttl.
    ///
    /// # Cancellation
    /// If the future is dropped, the lease is released all the same.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        self.word.ends(LeaseLostError::Released);
        let (told, answered) = oneshot::channel();
        let back = self.back.take().ok_or(ReleaseError::Abandoned)?;
        back.send(told).map_err(|_| ReleaseError::Abandoned)?;
        answered.await.map_err(|_| ReleaseError::Abandoned)?
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The lease is marked as ended before the release is sent, so that tasks that wait for its loss are woken
        // before another client can hold the lock.
        self.word.ends(LeaseLostError::Released);
    }
}

/// The secret of the lease is left out.
impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remaining = self.word.remaining();
        f.debug_struct("Lease")
            .field("reference", &self.told.handle.reference)
            .field("remaining", &remaining)
            .finish()
    }
}

impl Token<'_> {
    /// The text for `Fencing-Token`. Of two tokens, the greater one by bytes is the newer one.
    pub fn as_str(&self) -> &str {
        &self.token
    }

    /// The number for `Fencing-Number`, for services that compare numbers.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The ticket, which proves the token to a guard; `None` if the policy has no tickets.
    pub fn ticket(&self) -> Option<&str> {
        self.ticket.as_deref()
    }
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.token)
    }
}
