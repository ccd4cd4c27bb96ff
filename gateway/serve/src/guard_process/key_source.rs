//! The source of the keys that verify tickets: a file, or a URL that is fetched at intervals.

use std::sync::Arc;

use fencegate_config::jwks_fetcher::{JwksFetcher, JwksRefreshPolicy};
use fencegate_policies::plan;
use fencegate_ticket::TicketVerifier;
use tokio::runtime::Runtime;
use tracing::warn;

use super::error::GuardProcessError;

/// The verifier of tickets, and the source of its keys.
pub(super) struct GuardTicketKeySource {
    verifier: Arc<TicketVerifier>,
    /// Fetches the keys; `None` if they come from a file.
    remote: Option<JwksFetcher>,
}

/// Fetches the keys at intervals, and never returns. If the keys are in a file, it does nothing.
pub(super) async fn run_ticket_key_refresh(source: Option<&GuardTicketKeySource>) {
    if let Some(remote) = source.and_then(|source| source.remote.as_ref()) {
        remote.run_refresh_loop().await;
    }
    std::future::pending().await
}

impl GuardTicketKeySource {
    pub(super) fn open(
        from: &plan::TicketVerificationKeys,
        runtime: &Runtime,
    ) -> Result<Self, GuardProcessError> {
        let of_file = |verifier| Self { verifier: Arc::new(verifier), remote: None };
        Ok(match from {
            plan::TicketVerificationKeys::PublicKeys(path) => of_file(TicketVerifier::from_jwks_file(path)?),
            plan::TicketVerificationKeys::Secret(path) => of_file(TicketVerifier::from_secret_file(path)?),
            plan::TicketVerificationKeys::Jwks(url) => {
                let verifier = TicketVerifier::without_keys();
                let keys = verifier.keys().clone();
                let remote = JwksFetcher::new(url, JwksRefreshPolicy::default(), None, keys)?;
                // The guard starts without keys, and refuses every ticket until they come. That is better than a
                // guard that does not start while the gateways do.
                if let Err(error) = runtime.block_on(remote.fetch()) {
                    warn!(%error, "the ticket keys could not be fetched; until they are, every ticket is refused");
                }
                Self { verifier: Arc::new(verifier), remote: Some(remote) }
            }
        })
    }

    pub(super) fn verifier(&self) -> Arc<TicketVerifier> {
        self.verifier.clone()
    }
}
