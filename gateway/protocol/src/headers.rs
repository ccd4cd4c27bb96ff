//! The names of the header fields that Fencegate itself writes and reads.

use fencegate_policies::plan::TokenHeaderNames;
use hyper::header::HeaderName;

/// The token of a dispatch. The next field has the number of the token alone, for services that compare
/// numbers.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static(TokenHeaderNames::TOKEN);
pub const FENCING_NUMBER: HeaderName = HeaderName::from_static(TokenHeaderNames::NUMBER);
pub const FENCING_KEY: HeaderName = HeaderName::from_static("fencing-key");
pub const FENCING_MODE: HeaderName = HeaderName::from_static("fencing-mode");
/// The number of entries that `Via` had when the gateway sent the request.
pub const FENCING_HOPS: HeaderName = HeaderName::from_static("fencing-hops");
pub const FENCING_OPERATION: HeaderName = HeaderName::from_static("fencing-operation");
/// The moment after which a dispatch must not be begun, as [`fencegate_policies::not_after`] writes it.
pub const FENCING_NOT_AFTER: HeaderName = HeaderName::from_static("fencing-not-after");
pub const FENCING_TICKET: HeaderName = HeaderName::from_static("fencing-ticket");
/// For a guard: the dispatch in which a service sent this request, and beside which the request may run. It is
/// accepted only with a ticket.
pub const FENCING_PARENT: HeaderName = HeaderName::from_static("fencing-parent");
/// With the value `allow` a guard passes the ticket on to the service, which may call back.
pub const FENCING_NESTED: HeaderName = HeaderName::from_static("fencing-nested");
/// The id of the lease under which a request runs. It is a secret of the client that holds the lease.
pub const FENCING_LEASE: HeaderName = HeaderName::from_static("fencing-lease");
/// The token of a principal, where `Authorization` is used for another purpose.
pub const FENCING_AUTHORIZATION: HeaderName = HeaderName::from_static("fencing-authorization");
/// Marks a request that a peer forwards. It is accepted only with the peer secret of this process.
pub const FENCING_FORWARDED: HeaderName = HeaderName::from_static("fencing-forwarded");
/// The outcome of a request, on every response that concerns a fenced route.
pub const FENCING_OUTCOME: HeaderName = HeaderName::from_static("fencing-outcome");
/// The reason for which a guard, or a service that compares tokens, has admitted nothing.
pub const FENCING_REFUSAL: HeaderName = HeaderName::from_static("fencing-refusal");

/// The clock of a filter, on each of its responses.
pub const FENCING_CLOCK: HeaderName = HeaderName::from_static("fencing-clock");

/// W3C Trace Context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// An id of the request that the client can quote.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The methods that are served, as `Allow` lists them. The routes decide which of them a path accepts.
pub const SERVED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
