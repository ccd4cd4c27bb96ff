//! Makes a policy out of the description of an HTTP interface (OpenAPI 3.0 and 3.1). Keys are proposed from path
//! parameters and from members that every body has. What the description leaves open is not guessed: a comment with
//! [`MARK`] in the policy asks for the decision, and an operation without a key has no route, so its requests are
//! refused.
//!
//! - `document`: the file as a tree, and its references
//! - `operation`, `path`, `schema`, `server`: read the few fields that matter from that tree
//! - `decide`, `resources`, `proposal`: a key for each operation, or the reason for which there is none
//! - `overlap`: withdraws routes that would take the requests of an operation without a route
//! - `policy_text`, `policy_parts`: write the policy
//!
//! No crate for OpenAPI is used: each of them knows only one of the two versions, and refuses documents for fields that
//! do not matter here.

mod decide;
mod document;
mod operation;
mod overlap;
mod path;
mod policy_parts;
mod policy_text;
mod proposal;
mod resources;
mod schema;
mod server;
#[cfg(test)]
mod tests;

use fencegate_policies::diagnostics::Diagnostic;

pub use self::{
    document::OpenApiDocument,
    policy_text::{MARK, OpenApiPolicyDraft},
    proposal::OpenApiImportCounts,
};
use self::{operation::ApiOperations, server::BasePath};

/// Makes a policy from the text of an OpenAPI document.
///
/// # Errors
/// Returns a diagnostic if the text is no OpenAPI document, or has no operations.
pub fn import(text: &str) -> Result<OpenApiPolicyDraft, Diagnostic> {
    let document = OpenApiDocument::parse(text)?;
    let operations = ApiOperations::read(&document)?;
    let base = BasePath::from_document(&document);
    let proposals = decide::propose(operations, base.prefix());
    Ok(OpenApiPolicyDraft::new(&document, &base, proposals))
}
