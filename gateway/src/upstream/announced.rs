//! Asks a guard who it is, at the beginning of a connection.

use std::io;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{
    Request, StatusCode,
    header::{HOST, HeaderValue},
};

use super::{guards::Distrust, link::Link, pool::Failed};
use crate::{
    body::Body,
    guard::announce::{ANNOUNCEMENT, Announcement},
};

/// Leaves the connection ready for another exchange. One that breaks is that of a guard which is away, and says nothing of
/// who would have answered.
pub(super) async fn announcement(link: &mut Link) -> Result<Announcement, Failed> {
    let none = |why: String| Failed::Distrusted(Distrust::NoGuard(why));
    let host = HeaderValue::from_str(&link.endpoint.name).map_err(|error| none(error.to_string()))?;
    let request = Request::get(ANNOUNCEMENT).header(HOST, host).body(Body::empty());
    let request = request.map_err(|error| none(error.to_string()))?;
    let answer = link.send(request).await.map_err(|failed| match failed.why.is_parse() {
        true => none(failed.why.to_string()),
        false => Failed::Io(io::Error::other(failed.why)),
    })?;
    if answer.status() != StatusCode::OK {
        return Err(none(format!("it answers {} with {}", ANNOUNCEMENT, answer.status().as_u16())));
    }
    let body = Limited::new(answer.into_body(), LONGEST_ANNOUNCEMENT).collect().await;
    let body = body.map_err(|error| match error.downcast::<LengthLimitError>() {
        Ok(error) => none(error.to_string()),
        Err(error) => Failed::Io(io::Error::other(error)),
    })?;
    let announced = serde_json::from_slice(&body.to_bytes()).map_err(|error| none(error.to_string()))?;
    if !link.settled().await {
        return Err(Failed::Io(io::Error::other("the connection ended behind the announcement")));
    }
    Ok(announced)
}

const LONGEST_ANNOUNCEMENT: usize = 16 << 10;
