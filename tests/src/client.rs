//! Clients: two speak HTTP/1.1 and HTTP/2 through hyper, one sends any bytes, and one sends any HTTP/2 frames.
//!
//! The two with hyper send a [`TestRequest`] and get a [`ClientResponse`]: [`Http1Client`] sends one after the
//! other, [`Http2Client`] sends many at once. Over TLS, [`TestTlsClient`] makes the stream below them.

mod dial;
pub mod frames;
mod http1;
mod http2;
mod raw;
mod request;
mod response;
mod tls;

pub use self::{
    http1::Http1Client,
    http2::Http2Client,
    raw::RawClient,
    request::TestRequest,
    response::{ClientResponse, FencingOutcome},
    tls::TestTlsClient,
};
