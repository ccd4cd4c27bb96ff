//! The HTTP interface for leases, on the public listeners, below `/.fencegate/v1`.
//!
//! The gateway that holds a lease answers every request about it; peers forward the request there. No secret is part
//! of a path, because proxies log paths.

pub mod admin;
pub mod client;
pub mod context;
mod elections;
pub mod grant;
mod key_queue;
pub mod watch;

use axum::{
    Router,
    routing::{get, post},
};
use fencegate_refusal::{Refusal, RefusalReason};

use self::context::LeaseApiState;

/// The routes. Each request must have a [`context::LeaseCaller`] as an extension.
pub fn routes(interface: LeaseApiState) -> Router {
    let v1 = Router::new()
        .route("/leases", get(admin::list).post(client::acquire))
        .route("/leases/{reference}", get(client::show).delete(client::release))
        .route("/leases/{reference}/renew", post(client::renew))
        .route("/leases/{reference}/revoke", post(admin::revoke))
        .route("/leases/{reference}/break", post(admin::break_lease))
        .route("/keys/{key}", get(key_queue::show))
        .route("/elections/{name}", get(elections::show))
        .route("/elections/{name}/leader", get(elections::check_leader))
        .method_not_allowed_fallback(async || {
            Refusal::new(RefusalReason::Method, "no such method of a lease")
        })
        .fallback(async || Refusal::new(RefusalReason::NoRoute, "nothing of leases is there"));
    Router::new().nest("/.fencegate/v1", v1).with_state(interface)
}
