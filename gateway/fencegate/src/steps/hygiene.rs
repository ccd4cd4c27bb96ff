//! Takes off a request what must not pass a proxy, and says its host in one spelling.

use std::sync::Arc;

use fencegate_http::{body::fields::clean, upstream::speak::TakesTrailers};
use fencegate_policies::plan::Plan;
use hyper::{
    HeaderMap,
    header::{self, HeaderValue},
};

use crate::{
    step::Stops,
    steps::{screen::Screened, upgrade::Invitation},
};

/// No hop-by-hop field, no field that only we may write.
pub struct Clean {
    pub request: Screened,
    /// The fields taken off that only we may write: claims, until somebody has verified them.
    pub presented: HeaderMap,
}

pub fn hygiene(plan: &Arc<Plan>, mut request: Screened) -> Result<Clean, Stops> {
    if takes_trailers(request.http.headers()) {
        request.http.extensions_mut().insert(TakesTrailers);
    }
    if let Some(wanted) = Invitation::of(&request.http) {
        request.http.extensions_mut().insert(wanted);
    }
    let headers = request.http.headers_mut();
    // Before anything of ours is added: a client may name our field in `Connection` to have it taken off again.
    let presented = clean(headers, &plan.fields);
    headers.remove(header::TRAILER);
    headers.remove(header::EXPECT);
    // One spelling of the host, also for absolute targets, which are forwarded in origin form.
    let host = request.host.as_str();
    if headers.get(header::HOST).is_none_or(|said| said != host) {
        let host = HeaderValue::from_str(host).expect("a canonical host is visible ASCII");
        headers.insert(header::HOST, host);
    }
    Ok(Clean { request, presented })
}

/// `TE: trailers` is of one hop like all of `TE`, and said again to an upstream that can send trailers.
fn takes_trailers(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::TE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}
