//! Asks a guard who it is, at the beginning of a connection.

use std::{io, sync::Arc};

use fencegate_guard::announce::{ANNOUNCEMENT, Announcement};
use fencegate_http::{
    body::Body,
    upstream::{
        address::Address,
        introduce::{Attempt, Doubt, Due, Introduced, Introductions, Unmet},
        pooled::Pooled,
    },
};
use fencegate_policies::plan::{Level, Upstream, host_of};
use fencegate_process::clock::SharedClock;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{
    Request, StatusCode,
    header::{HOST, HeaderValue},
};
use tracing::error;

use super::guards::{Distrust, Guards};

impl Introductions for Guards {
    fn are_needed(&self, upstream: &Upstream) -> bool {
        upstream.fencing == Level::Guard
    }

    /// Before any request is sent on a connection, the guard says who it is.
    fn introduce<'a>(
        &'a self,
        pooled: &'a mut Pooled,
        upstream: &'a Upstream,
        clock: &'a SharedClock,
    ) -> Introduced<'a> {
        Box::pin(async move {
            let asking = self.ask(upstream);
            let announced = announcement(pooled).await.inspect_err(|unmet| {
                // A guard that has just gone is not distrusted.
                if let Unmet::Stranger(why) = unmet {
                    let endpoint = pooled.endpoint();
                    error!(upstream = %upstream.name, %endpoint, %why, "guard.distrusted");
                }
            })?;
            let met = self.meet(upstream, pooled.address(), &announced, asking, clock.now());
            met.map_err(|why| match why {
                Distrust::Replaced => Unmet::Io(io::Error::other(why)),
                Distrust::Split => Unmet::Contradicted(why.into()),
                why => Unmet::Distrusted(why.into()),
            })
        })
    }

    fn due(&self, upstream: &Upstream, address: &Address) -> Due {
        Self::due(self, upstream, address)
    }

    fn attempt(&self) -> Attempt {
        Self::attempt(self)
    }

    fn lost(&self, upstream: &Upstream, address: &Arc<Address>, attempt: Attempt) {
        Self::lost(self, upstream, address, attempt);
    }

    fn agree(&self, upstream: &Upstream) -> Result<(), Doubt> {
        Self::agree(self, upstream).map_err(|why| {
            let guards = self.announced(upstream);
            error!(upstream = %upstream.name, %guards, %why, "guard.distrusted");
            why.into()
        })
    }

    fn is_believed(&self, upstream: &Upstream, address: &Address, process: &Arc<str>) -> bool {
        Self::is_believed(self, upstream, address, process)
    }
}

/// Asks for the announcement, and leaves the connection ready for a request. If the connection breaks, the guard is
/// away; that says nothing about who it is.
async fn announcement(pooled: &mut Pooled) -> Result<Announcement, Unmet> {
    let none = |why: String| Unmet::Stranger(Distrust::NoGuard(why).into());
    let host = HeaderValue::from_str(host_of(pooled.endpoint())).map_err(|error| none(error.to_string()))?;
    let request = Request::get(ANNOUNCEMENT).header(HOST, host).body(Body::empty());
    let request = request.map_err(|error| none(error.to_string()))?;
    let answer = pooled.send(request).await.map_err(|failed| match failed.why.is_parse() {
        true => none(failed.why.to_string()),
        false => Unmet::Io(io::Error::other(failed.why)),
    })?;
    if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
        // The guard cannot reach its store, so it cannot name it. Nothing is sent there meanwhile.
        return Err(Unmet::Io(io::Error::other("it cannot say who it is: 503")));
    }
    if answer.status() != StatusCode::OK {
        return Err(none(format!("it answers {} with {}", ANNOUNCEMENT, answer.status().as_u16())));
    }
    let body = Limited::new(answer.into_body(), LONGEST_ANNOUNCEMENT).collect().await;
    let body = body.map_err(|error| match error.downcast::<LengthLimitError>() {
        Ok(error) => none(error.to_string()),
        Err(error) => Unmet::Io(io::Error::other(error)),
    })?;
    let announced = serde_json::from_slice(&body.to_bytes()).map_err(|error| none(error.to_string()))?;
    if !pooled.settled().await {
        return Err(Unmet::Io(io::Error::other("the connection ended behind the announcement")));
    }
    Ok(announced)
}

const LONGEST_ANNOUNCEMENT: usize = 16 << 10;
