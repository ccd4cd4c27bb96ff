//! Clients: two that speak HTTP/1.1 and HTTP/2 through hyper, and two that say any bytes, or any frames.
//!
//! All but those two send an [`Ask`] and get an [`Answer`]: [`Client`] one after the other, [`Streams`] many at once. Over
//! TLS, [`Secure`] makes the stream below them.

mod answer;
mod ask;
mod dial;
mod exchanges;
pub mod frames;
mod raw;
mod secure;
mod streams;

pub use self::{
    answer::{Answer, Outcome},
    ask::Ask,
    exchanges::Client,
    raw::Raw,
    secure::Secure,
    streams::Streams,
};
