//! Takes a lock directly from ZooKeeper, in the place and layout that the gateways of a policy use.

use std::{process, sync::Arc, time::Duration};

use fencegate_lock::client::{ConnectOptions, LockClient, LockClientError, LockGuard};
use fencegate_policies::{
    key::ResourceKey,
    permits::PermitCount,
    plan::{GatewayPlan, LockLocation, ZooKeeperSettings},
};
use fencegate_process::host_name::host_name;
use tokio::time::{Instant, sleep, timeout};

use super::{
    lock_spec::{
        AcquireLockError, CommandLockInfo, CommandLockMode, CommandLockSpec, CommandLockStatus,
        LockWaitPolicy,
    },
    renewals::LockRenewalSchedule,
};

/// A session of our own with ZooKeeper.
pub struct ZooKeeperLockSource {
    plan: Arc<GatewayPlan>,
    options: ConnectOptions,
    client: Option<LockClient>,
}

/// A lock that our session holds.
#[derive(Debug)]
pub(super) struct DirectCommandLock(LockGuard);

/// The place of the lock of one key, and its delay, as the gateways of a policy have them.
struct KeyLockRules {
    site: LockLocation,
    delay: Option<Duration>,
}

/// The pause between two attempts while ZooKeeper is away.
const PAUSE: Duration = Duration::from_millis(250);

/// The longest wait for the end of the session. If it takes longer, the session ends by its timeout.
const GOODBYE: Duration = Duration::from_secs(5);

/// The longest single wait. An unlimited wait is repeated.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 3600);

impl ZooKeeperLockSource {
    /// A source whose locks are in ZooKeeper. `ttl`: how long the lock outlives this process. Default: the
    /// session timeout of the policy.
    pub fn new(plan: GatewayPlan, ttl: Option<Duration>) -> Self {
        let mut options = ConnectOptions::from_policy(&plan.zookeeper, &holder_name());
        options.session_timeout = ttl.unwrap_or(options.session_timeout);
        Self { plan: Arc::new(plan), options, client: None }
    }

    /// The renewals of a session with the requested timeout.
    pub(super) fn renewals(&self) -> LockRenewalSchedule {
        let timeout = self.options.session_timeout;
        let proves = timeout.saturating_sub(self.plan.zookeeper.margin(timeout));
        LockRenewalSchedule { proves, interval: ZooKeeperSettings::heartbeat_interval(timeout) }
    }

    pub(super) async fn acquire(
        &mut self,
        wanted: &CommandLockSpec,
    ) -> Result<DirectCommandLock, AcquireLockError> {
        let late = match wanted.wait {
            LockWaitPolicy::For(wait) => Some(Instant::now() + wait),
            LockWaitPolicy::Forever => None,
        };
        loop {
            let left = late.map_or(LONGEST_WAIT, |late| late.saturating_duration_since(Instant::now()));
            let error = match self.request_lock(wanted, left).await {
                Ok(held) => return Ok(DirectCommandLock(held)),
                Err(error) => error,
            };
            let again = late.is_none_or(|late| Instant::now() + PAUSE < late);
            match acquire_error(&wanted.key, error) {
                AcquireLockError::Held(_) | AcquireLockError::Unavailable { .. } if again => {
                    sleep(PAUSE).await
                }
                refusal => return Err(refusal),
            }
        }
    }

    async fn request_lock(
        &mut self,
        wanted: &CommandLockSpec,
        wait: Duration,
    ) -> Result<LockGuard, LockClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => LockClient::connect(self.options.clone()).await?,
        };
        let client = self.client.insert(client);
        let KeyLockRules { site, delay } = KeyLockRules::new(&self.plan, &wanted.key);
        let key = wanted.key.as_str();
        let ask = match wanted.access {
            CommandLockMode::Exclusive => client.lock(key),
            CommandLockMode::Shared => client.read(key),
        };
        if wanted.permits.is_some()
            && site != LockLocation::Native
            && site.permits().map(PermitCount::count) != wanted.permits
        {
            return Err(LockClientError::Key(
                "the policy has its lock elsewhere, or for another number of holders".into(),
            ));
        }
        let ask = match wanted.permits {
            Some(permits) => ask.wait(wait).permits(permits),
            None => ask.wait(wait).at_site(site),
        };
        delay.into_iter().fold(ask, |ask, delay| ask.delay(delay)).await
    }

    pub(super) async fn close_lock_client(self) {
        if let Some(client) = self.client {
            // If this takes longer, the server ends the session after its timeout.
            timeout(GOODBYE, client.close()).await.ok();
        }
    }
}

impl KeyLockRules {
    fn new(plan: &GatewayPlan, key: &ResourceKey) -> Self {
        let serving = &plan.serving;
        let routes = serving.routes.routes().iter();
        let fences = routes.filter_map(|route| Some((route.fence.as_ref()?.site_of(key)?, route.upstream)));
        let fences: Vec<_> = fences.collect();
        let delay = fences
            .iter()
            .filter_map(|(_, upstream)| serving.upstream(*upstream).fencing.handover_delay())
            .max();
        let site = fences.into_iter().map(|(site, _)| site).find(|site| *site != LockLocation::Native);
        Self { site: site.unwrap_or_default(), delay }
    }
}

impl DirectCommandLock {
    pub(super) fn info(&self) -> CommandLockInfo {
        let token = self.0.token();
        let permit = self.0.permit().map(|permit| permit.number().into());
        CommandLockInfo { token: token.to_string(), number: token.number(), lease: None, permit }
    }

    pub(super) fn status(&self) -> CommandLockStatus {
        self.0.valid_until().map_or(CommandLockStatus::Lost, CommandLockStatus::Proven)
    }

    pub(super) fn release(self) {
        self.0.release();
    }
}

fn acquire_error(key: &ResourceKey, error: LockClientError) -> AcquireLockError {
    let key = key.clone();
    match error {
        LockClientError::Locked => AcquireLockError::Held(key),
        LockClientError::Unavailable(_) | LockClientError::KeyLimit(_) => {
            AcquireLockError::Unavailable { key, why: error.to_string() }
        }
        LockClientError::Options(error)
        | LockClientError::Key(error)
        | LockClientError::NotInitialised(error)
        | LockClientError::RolledBack(error) => AcquireLockError::Permanent { key, why: error },
    }
}

/// The name of the holder that operators see: `lock.<machine>.<process>`.
fn holder_name() -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    format!("lock.{}.{}", host_name().chars().map(plain).collect::<String>(), process::id())
}
