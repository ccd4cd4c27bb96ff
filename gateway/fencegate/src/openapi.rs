//! Describes our own interfaces to programs, in OpenAPI 3.1, out of the types that they answer with: the admin listeners of both
//! roles, and what clients ask about leases. What is for people, the pages, is not in it.

mod client_leases;
mod described;
mod gateway_admin;
mod guard_admin;

/// The document of a gateway's admin listener.
pub fn gateway() -> String {
    gateway_admin::described().document()
}

/// The document of a guard's admin listener, and of the path at which it tells gateways who it is.
pub fn guard() -> String {
    guard_admin::described().document()
}

/// The document of what clients ask a gateway about leases, keys and elections.
pub fn leases() -> String {
    client_leases::described().document()
}

#[cfg(test)]
mod tests;
