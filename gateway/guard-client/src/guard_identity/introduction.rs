//! Requests the identity of a guard at the beginning of a connection.

use std::{io, sync::Arc};

use fencegate_guard::identity::{ANNOUNCEMENT, GuardIdentityResponse};
use fencegate_http::body::Body;
use fencegate_http_client::upstream::{
    address::ResolvedEndpoint,
    identity_check::{
        BoxError, EndpointIdentityVerifier, IdentityCheckDue, IdentityCheckError, IdentityCheckStartSeq,
        IdentityFuture,
    },
    pooled_connection::PooledConnection,
};
use fencegate_policies::plan::{FencingLevel, Upstream, host_header};
use fencegate_process::clock::SharedClock;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{
    Request, StatusCode,
    header::{HOST, HeaderValue},
};
use tracing::error;

use super::registry::{GuardIdentityError, UpstreamGuardRegistry};

impl EndpointIdentityVerifier for UpstreamGuardRegistry {
    fn is_identity_check_required(&self, upstream: &Upstream) -> bool {
        upstream.fencing == FencingLevel::Guard
    }

    /// Requests the guard's announcement before any other request is sent on the connection.
    fn check_identity<'a>(
        &'a self,
        pooled: &'a mut PooledConnection,
        upstream: &'a Upstream,
        clock: &'a SharedClock,
    ) -> IdentityFuture<'a> {
        Box::pin(async move {
            let asking = self.begin_check(upstream);
            let announced = fetch_announcement(pooled).await.inspect_err(|unmet| {
                // Only an answer that is no announcement is logged. A guard that has just ended is unreachable,
                // and not distrusted.
                if let IdentityCheckError::UnknownProcess(why) = unmet {
                    let endpoint = pooled.endpoint();
                    error!(upstream = %upstream.name, %endpoint, %why, "guard.distrusted");
                }
            })?;
            let met = self.record_announcement(upstream, pooled.address(), &announced, asking, clock.now());
            met.map_err(|why| match why {
                GuardIdentityError::Replaced => IdentityCheckError::Io(io::Error::other(why)),
                GuardIdentityError::Split => IdentityCheckError::Contradicted(why.into()),
                why => IdentityCheckError::Distrusted(why.into()),
            })
        })
    }

    fn check_due(&self, upstream: &Upstream, address: &ResolvedEndpoint) -> IdentityCheckDue {
        Self::check_due(self, upstream, address)
    }

    fn start_attempt(&self) -> IdentityCheckStartSeq {
        Self::begin_attempt(self)
    }

    fn record_failure(
        &self,
        upstream: &Upstream,
        address: &Arc<ResolvedEndpoint>,
        attempt: IdentityCheckStartSeq,
    ) {
        Self::record_no_guard(self, upstream, address, attempt);
    }

    fn check_identities_consistent(&self, upstream: &Upstream) -> Result<(), BoxError> {
        Self::check_consistent(self, upstream).map_err(|why| {
            let guards = self.describe_announcements(upstream);
            error!(upstream = %upstream.name, %guards, %why, "guard.distrusted");
            why.into()
        })
    }

    fn is_trusted(&self, upstream: &Upstream, address: &ResolvedEndpoint, process: &Arc<str>) -> bool {
        Self::is_trusted(self, upstream, address, process)
    }
}

/// Requests the announcement, and leaves the connection ready for a request. If the connection breaks, the guard is
/// unreachable; that shows nothing about its identity.
async fn fetch_announcement(
    pooled: &mut PooledConnection,
) -> Result<GuardIdentityResponse, IdentityCheckError> {
    let none = |why: String| IdentityCheckError::UnknownProcess(GuardIdentityError::NoGuard(why).into());
    let host =
        HeaderValue::from_str(host_header(pooled.endpoint())).map_err(|error| none(error.to_string()))?;
    let request = Request::get(ANNOUNCEMENT).header(HOST, host).body(Body::empty());
    let request = request.map_err(|error| none(error.to_string()))?;
    let answer = pooled.send(request).await.map_err(|failed| match failed.why.is_parse() {
        true => none(failed.why.to_string()),
        false => IdentityCheckError::Io(io::Error::other(failed.why)),
    })?;
    if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
        // The guard cannot reach its store, so it cannot announce the store. Nothing is sent to this guard until
        // it can.
        return Err(IdentityCheckError::Io(io::Error::other("it cannot say who it is: 503")));
    }
    if answer.status() != StatusCode::OK {
        return Err(none(format!("it answers {} with {}", ANNOUNCEMENT, answer.status().as_u16())));
    }
    let body = Limited::new(answer.into_body(), MAX_ANNOUNCEMENT_LEN).collect().await;
    let body = body.map_err(|error| match error.downcast::<LengthLimitError>() {
        Ok(error) => none(error.to_string()),
        Err(error) => IdentityCheckError::Io(io::Error::other(error)),
    })?;
    let announced = serde_json::from_slice(&body.to_bytes()).map_err(|error| none(error.to_string()))?;
    if !pooled.wait_settled().await {
        return Err(IdentityCheckError::Io(io::Error::other("the connection ended behind the announcement")));
    }
    Ok(announced)
}

const MAX_ANNOUNCEMENT_LEN: usize = 16 << 10;
