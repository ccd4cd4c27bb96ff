//! Clients: two speak HTTP/1.1 and HTTP/2 through hyper, one sends any bytes, and one sends any HTTP/2 frames.
//!
//! The two with hyper send an [`TestRequest`] and get an [`ClientResponse`]: [`Http1Client`] sends one after the other, [`Http2Client`] sends
//! many at once. Over TLS, [`TlsClient`] makes the stream below them.

mod answer;
mod ask;
mod dial;
mod exchanges;
pub mod frames;
mod raw;
mod secure;
mod streams;

pub use self::{
    answer::{ClientResponse, FencingOutcome},
    ask::TestRequest,
    exchanges::Http1Client,
    raw::RawClient,
    secure::TlsClient,
    streams::Http2Client,
};
