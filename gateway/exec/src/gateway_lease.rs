//! Takes a lock as a lease from the HTTP interface of a gateway. The lease is renewed and followed by the client in
//! `deploy/clients/rust`.

use std::{error::Error, time::Duration};

use fencegate_client::{AcquireError, Client, Lease};
use fencegate_policies::key::ResourceKey;
use fencegate_process::{
    clock::{BootInstant, Clock, MachineClock},
    display::error_chain,
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    lock_spec::{
        AcquireLockError, CommandLockInfo, CommandLockMode, CommandLockSpec, CommandLockStatus,
        LockWaitPolicy,
    },
    renewals::LockRenewalSchedule,
};

/// The gateways of one installation at which the lease may be requested.
pub struct GatewayLeaseSource {
    client: Client,
    /// How long a lease lives without a renewal. Default: the one of the gateways.
    ttl: Option<Duration>,
    /// A note that is shown to others who query the holder of the lock.
    note: Option<String>,
}

/// A lease that a gateway holds for this process.
#[derive(Debug)]
pub(super) struct LeasedCommandLock {
    info: CommandLockInfo,
    lease: Lease,
    renewals: LockRenewalSchedule,
}

/// The reason of a refusal with 409: the request before it, under the same name, is in progress.
const IN_PROGRESS: &str = "in-progress";
/// The pause between two attempts while no gateway has an answer.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest wait for the end of a request that was given up. If it takes longer, its lease ends after its
/// time to live.
const GOODBYE: Duration = Duration::from_secs(3);

impl GatewayLeaseSource {
    pub fn new(client: Client, ttl: Option<Duration>, note: Option<String>) -> Self {
        Self { client, ttl, note }
    }

    pub(super) async fn acquire(
        &mut self,
        wanted: &CommandLockSpec,
    ) -> Result<LeasedCommandLock, AcquireLockError> {
        let late = match wanted.wait {
            LockWaitPolicy::For(wait) => Some(Instant::now() + wait),
            LockWaitPolicy::Forever => None,
        };
        loop {
            let left = late.map(|late| late.saturating_duration_since(Instant::now()));
            let refused = match self.request_lease(wanted, left).await {
                Ok(lease) => match LeasedCommandLock::new(lease) {
                    Some(held) => return Ok(held),
                    None => {
                        unavailable(&wanted.key, "the lease was over before the command could be started")
                    }
                },
                Err(refused) => acquire_error(&wanted.key, refused),
            };
            let again = late.is_none_or(|late| Instant::now() + PAUSE < late);
            match refused {
                AcquireLockError::Unavailable { .. } if again => sleep(PAUSE).await,
                refused => return Err(refused),
            }
        }
    }

    /// Requests the lease. A request that does not wait is answered at once; any other waits in the queue. The
    /// command is ended before the lock validity is over, so the client needs no notice of its own. Until the
    /// command is gone, the lease is renewed.
    async fn request_lease(
        &self,
        wanted: &CommandLockSpec,
        left: Option<Duration>,
    ) -> Result<Lease, AcquireError> {
        let mut request = self.client.lease(wanted.key.as_str());
        request = request.notice(Duration::ZERO).watched().kept_until_released();
        if left != Some(Duration::ZERO) {
            request = request.queued(left);
        }
        if wanted.access == CommandLockMode::Shared {
            request = request.shared();
        }
        if let Some(ttl) = self.ttl {
            request = request.ttl(ttl);
        }
        if let Some(note) = &self.note {
            request = request.note(note);
        }
        request.await
    }

    /// Waits until a request that was given up has left the queue.
    pub(super) async fn wait_abandoned_requests(self) {
        timeout(GOODBYE, self.client.wait_released()).await.ok();
    }
}

impl LeasedCommandLock {
    /// `None`: the lease is lost.
    fn new(lease: Lease) -> Option<Self> {
        let info = {
            let token = lease.token().ok()?;
            CommandLockInfo {
                token: token.to_string(),
                number: token.number(),
                lease: lease.header_value().to_str().ok().map(str::to_owned),
                permit: lease.permit().map(u32::from),
            }
        };
        let renewals = LockRenewalSchedule::renewals_for_lease(held_until(&lease)?.since(MachineClock.now()));
        Some(Self { info, lease, renewals })
    }

    pub(super) fn info(&self) -> CommandLockInfo {
        self.info.clone()
    }

    pub(super) fn renewals(&self) -> LockRenewalSchedule {
        self.renewals
    }

    pub(super) fn status(&self) -> CommandLockStatus {
        match held_until(&self.lease) {
            None => CommandLockStatus::Lost,
            Some(until) if self.lease.is_revoked() => CommandLockStatus::Revoked(until),
            Some(until) => CommandLockStatus::Proven(until),
        }
    }

    pub(super) async fn release(self) {
        // A lease that no gateway takes back ends after its time to live.
        self.lease.release().await.ok();
    }
}

/// `None`: the lease is lost.
fn held_until(lease: &Lease) -> Option<BootInstant> {
    let since_boot = lease.held_until().ok()?;
    Some(BootInstant::from_nanos(u64::try_from(since_boot.as_nanos()).ok()?))
}

fn acquire_error(key: &ResourceKey, error: AcquireError) -> AcquireLockError {
    match error {
        AcquireError::Locked { .. } => AcquireLockError::Held(key.clone()),
        // This gateway has no result, or the lease was ours and is over. The next attempt begins anew.
        AcquireError::Refused { status: 412 | 429 | 500.., detail, .. } => unavailable(key, &detail),
        // The gateway still worked on the request when the client's time for an answer was over.
        AcquireError::Refused { status: 409, reason, detail, .. } if reason == IN_PROGRESS => {
            unavailable(key, &detail)
        }
        AcquireError::Refused { status, detail, .. } => {
            AcquireLockError::Permanent { key: key.clone(), why: format!("{detail} ({status})") }
        }
        AcquireError::Over { why } => unavailable(key, &why),
        AcquireError::Unanswered(why) => {
            let why: &(dyn Error + 'static) = &*why;
            unavailable(key, &error_chain(why))
        }
        error => unavailable(key, &error_chain(&error)),
    }
}

fn unavailable(key: &ResourceKey, reason: &str) -> AcquireLockError {
    AcquireLockError::Unavailable { key: key.clone(), why: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use fencegate_client::LeaseLostError;

    use super::*;

    /// A refusal after which another attempt can succeed is distinguished from a final one.
    #[test]
    fn retryable_refusal_differs_from_final_one() {
        let key = ResourceKey::parse_user_input("job/1").expect("a key");
        let refused_for = |status, reason: &str| AcquireError::Refused {
            status,
            reason: reason.to_owned(),
            detail: "why".to_owned(),
            retry_after: None,
        };
        let refused = |status| refused_for(status, "");
        let error = |error| acquire_error(&key, error);
        assert!(matches!(error(AcquireError::Locked { keys: Vec::new() }), AcquireLockError::Held(_)));
        for again in [412, 429, 500, 503] {
            assert!(
                matches!(error(refused(again)), AcquireLockError::Unavailable { why, .. } if why == "why"),
                "{again}"
            );
        }
        assert!(matches!(error(refused(403)), AcquireLockError::Permanent { why, .. } if why == "why (403)"));
        let in_progress = error(refused_for(409, "in-progress"));
        assert!(matches!(in_progress, AcquireLockError::Unavailable { why, .. } if why == "why"));
        let other = error(refused_for(409, "permits-differ"));
        assert!(matches!(other, AcquireLockError::Permanent { why, .. } if why == "why (409)"));
        for again in [
            AcquireError::Over { why: "session-lost".to_owned() },
            AcquireError::Unanswered("silence".into()),
            AcquireError::TooLate(LeaseLostError::Ended),
        ] {
            assert!(matches!(error(again), AcquireLockError::Unavailable { .. }));
        }
    }
}
