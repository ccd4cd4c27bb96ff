//! Describes the admin interfaces of both roles to programs, in OpenAPI 3.1, out of the types that they answer with. What
//! is for people, the pages, is not in it.

mod described;
mod gateway_paths;
mod guard_paths;

/// The document of a gateway's admin listener.
pub fn gateway() -> String {
    gateway_paths::described().document()
}

/// The document of a guard's admin listener, and of the path at which it tells gateways who it is.
pub fn guard() -> String {
    guard_paths::described().document()
}

#[cfg(test)]
mod tests;
