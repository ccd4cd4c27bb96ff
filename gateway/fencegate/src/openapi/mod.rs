//! Makes a policy out of the description of an HTTP interface (OpenAPI 3.0 and 3.1). Keys are proposed from path parameters and
//! from members that every body has. What the description does not say is not guessed: it stands in the policy behind
//! [`MARK`], and an operation without a key has no route, so its requests are refused.
//!
//! - `document`: the file as a tree, and its references
//! - `operation`, `path`, `schema`, `server`: the few fields that matter, out of that tree
//! - `decide`, `resources`, `proposal`: a key for each operation, or the reason for which there is none
//! - `overlap`: no route takes the requests of an operation that has none
//! - `policy_text`, `policy_parts`: the policy
//!
//! The crates that read OpenAPI know one of the two versions each, and refuse a document for fields that do not matter here.

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
    policy_text::{ImportedPolicy, MARK},
    proposal::ImportCounts,
};
use self::{operation::ApiOperations, server::BasePath};

/// Makes a policy out of the text of a document.
///
/// # Errors
/// The text is no OpenAPI document, or has no operations.
pub fn import(text: &str) -> Result<ImportedPolicy, Diagnostic> {
    let document = OpenApiDocument::parse(text)?;
    let operations = ApiOperations::read(&document)?;
    let base = BasePath::from_document(&document);
    let proposals = decide::propose(operations, base.prefix());
    Ok(ImportedPolicy::new(&document, &base, proposals))
}
