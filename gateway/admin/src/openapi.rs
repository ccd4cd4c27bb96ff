//! Describes the programming interfaces of Fencegate in OpenAPI 3.1, from the types of their answers: the admin
//! listeners of both roles, and the lease interface. The HTML pages are not described.

mod client_leases;
mod document;
mod gateway_admin;
mod guard_admin;

/// The document of a gateway's admin listener.
pub fn gateway_document() -> String {
    gateway_admin::document().document()
}

/// The document of a guard's admin listener, and of the path at which it announces itself to gateways.
pub fn guard_document() -> String {
    guard_admin::document().document()
}

/// The document of the lease interface.
pub fn leases_document() -> String {
    client_leases::lease_api_document().document()
}

#[cfg(test)]
mod tests;
