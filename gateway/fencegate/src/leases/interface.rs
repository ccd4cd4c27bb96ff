//! The HTTP interface for leases, on the public listeners, below `/.fencegate/v1`.
//!
//! The gateway that holds a lease answers every question about it; other gateways send the question there. No secret
//! stands in a path, because proxies log paths.

pub mod client_calls;
mod elections;
mod key_line;
pub(crate) mod oversight;
pub mod setting;
pub(crate) mod watching;

use axum::{
    Router,
    routing::{get, post},
};

use self::setting::LeaseApi;
use crate::refusal::{Reason, Refusal};

/// The routes. Each request must have a [`setting::LeaseCaller`] as an extension.
pub fn routes(interface: LeaseApi) -> Router {
    let v1 = Router::new()
        .route("/leases", get(oversight::list).post(client_calls::acquire))
        .route("/leases/{reference}", get(client_calls::show).delete(client_calls::release))
        .route("/leases/{reference}/renew", post(client_calls::renew))
        .route("/leases/{reference}/revoke", post(oversight::revoke))
        .route("/leases/{reference}/break", post(oversight::break_lease))
        .route("/keys/{key}", get(key_line::show))
        .route("/elections/{name}", get(elections::show))
        .route("/elections/{name}/leader", get(elections::check_leader))
        .method_not_allowed_fallback(async || Refusal::new(Reason::Method, "no such method of a lease"))
        .fallback(async || Refusal::new(Reason::NoRoute, "nothing of leases is there"));
    Router::new().nest("/.fencegate/v1", v1).with_state(interface)
}
