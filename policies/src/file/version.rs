//! Reads the version of a file; only version 1 exists.

use super::mapping::MappingReader;
use crate::diagnostics::{Diagnostic, DiagnosticCode};

pub(super) fn version(block: &mut MappingReader) {
    block.require("version", "version: 1");
    block.value("version", |version| match version {
        "1" => Ok(()),
        _ => Err(Diagnostic::new(
            DiagnosticCode::Version,
            format!("there is no version `{version}` of such files"),
        )
        .with_remedy("write `version: 1`")),
    });
}
