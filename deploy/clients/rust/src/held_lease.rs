//! A lease in the hands of whoever works under it.

use std::{fmt, future::Future, marker::PhantomData, sync::Arc, time::Duration};

use http::HeaderValue;
use tokio::sync::oneshot;

use crate::{
    not_leased::NotReleased,
    standing_word::{Lost, StandingWord},
};

/// A lock that is held through a gateway, and renewed in the background. Dropping it gives it back in the background.
#[must_use = "it is given back when it is dropped"]
pub struct Lease {
    pub(crate) word: Arc<StandingWord>,
    pub(crate) told: Told,
    /// Whoever renews it hears that it is to be given back: a wish for an answer, or that nobody is left.
    pub(crate) back: Option<oneshot::Sender<Releasing>>,
}

/// Whom to tell how it went.
pub(crate) type Releasing = oneshot::Sender<Result<(), NotReleased>>;

/// What stays the same for as long as a lease is held.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) reference: Arc<str>,
    pub(crate) id: HeaderValue,
    pub(crate) token: Arc<str>,
    pub(crate) number: u64,
    pub(crate) permit: Option<u16>,
}

/// The fencing token of a lease that was held when this was asked for. It cannot be kept beyond the lease.
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
    /// Nobody else can hold at this moment. The answer is as old as the time that has passed since: whoever may be paused
    /// behind it shows [`Lease::token`] to a service that compares, or stops by [`Lease::remaining`].
    pub fn holds(&self) -> bool {
        self.word.remaining().is_ok()
    }

    /// For so long from now nobody else can hold, as far as it is proven yet: a time limit for one piece of work.
    ///
    /// # Errors
    /// It is lost.
    pub fn remaining(&self) -> Result<Duration, Lost> {
        self.word.remaining()
    }

    /// What a service compares.
    ///
    /// # Errors
    /// The lease is lost.
    pub fn token(&self) -> Result<Token<'_>, Lost> {
        let ticket = self.word.ticket();
        self.word.remaining()?;
        let Told { token, number, .. } = &self.told;
        Ok(Token { token: token.clone(), number: *number, ticket, lease: PhantomData })
    }

    /// Returns when it is over, or is not proven any more: before somebody else can hold, by the
    /// [notice](crate::Wanted::notice). It never holds again. The future may outlive the lease.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + use<> {
        let word = self.word.clone();
        async move { word.lost().await }
    }

    /// Returns when somebody asks for the lease back, and why; `None` when it is over before. It is held until it is given
    /// back. Seen with the next renewal, a third of the proven time at most.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub fn revoked(&self) -> impl Future<Output = Option<Arc<str>>> + Send + use<> {
        let word = self.word.clone();
        async move { word.revoked().await }
    }

    /// Does the work for as long as the lease is held. The work is dropped at its next await when it is lost.
    ///
    /// # Errors
    /// It was lost before the work was done.
    ///
    /// # Cancellation
    /// The work is dropped; the lease goes on.
    pub async fn during<W: Future>(&self, work: W) -> Result<W::Output, Lost> {
        tokio::select! {
            // In this order: work that is done too late is not done.
            biased;
            lost = self.word.lost() => Err(lost),
            done = work => Ok(done),
        }
    }

    /// Which of the permits of its key it has, counted from 0; `None` for a key that one alone holds. Guards and services know the
    /// key as `KEY#PERMIT`.
    pub fn permit(&self) -> Option<u16> {
        self.told.permit
    }

    /// What lists and logs call it.
    pub fn reference(&self) -> &str {
        &self.told.reference
    }

    /// For the field [`FENCING_LEASE`](crate::FENCING_LEASE) of a request under the lease, which the gateway judges by itself. It is a secret, and
    /// marked as sensitive.
    pub fn shown(&self) -> HeaderValue {
        self.told.id.clone()
    }

    /// Gives it back. From here on it is not held.
    ///
    /// # Errors
    /// The gateway did not say so. The lease ends by itself then, after its ttl.
    ///
    /// # Cancellation
    /// It is given back all the same.
    pub async fn release(mut self) -> Result<(), NotReleased> {
        self.word.ends(Lost::Released);
        let (told, answered) = oneshot::channel();
        let back = self.back.take().ok_or(NotReleased::Abandoned)?;
        back.send(told).map_err(|_| NotReleased::Abandoned)?;
        answered.await.map_err(|_| NotReleased::Abandoned)?
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // First the word: whoever waits for the loss hears of it before somebody else can hold.
        self.word.ends(Lost::Released);
    }
}

/// Without the secret.
impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remaining = self.word.remaining();
        f.debug_struct("Lease")
            .field("reference", &self.told.reference)
            .field("remaining", &remaining)
            .finish()
    }
}

impl Token<'_> {
    /// For `Fencing-Token`; the greater one is newer.
    pub fn as_str(&self) -> &str {
        &self.token
    }

    /// For services that compare numbers.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Proves the token to a guard, where the policy has tickets.
    pub fn ticket(&self) -> Option<&str> {
        self.ticket.as_deref()
    }
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.token)
    }
}
