//! Reads what a process logs about requests.

use std::sync::Arc;

use super::{
    mapping::MappingReader,
    scalar::{self, Scheme},
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{AccessLogTarget, KeyVisibility, LogSettings, TraceExportSettings},
};

pub(super) fn log(block: &mut MappingReader) -> LogSettings {
    let read = |block: &mut MappingReader| {
        let access = block.keyword("access", AccessLogTarget::WORDS);
        let keys = block.keyword("keys", KeyVisibility::WORDS).unwrap_or_default();
        let key_secret_file = block.value("key_secret_file", scalar::file);
        if key_secret_file.is_some() && keys != KeyVisibility::Hash {
            let message = "`key_secret_file` has no effect where keys are not hashed";
            let remedy = "add `keys: hash`, or leave it out";
            block.report(
                "key_secret_file",
                Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy),
            );
        }
        LogSettings {
            access: access.unwrap_or_default(),
            keys,
            key_secret_file,
            traces: traces(block).map(Arc::new),
        }
    };
    block.read_inner("log", read).unwrap_or_default()
}

fn traces(block: &mut MappingReader) -> Option<TraceExportSettings> {
    if !block.is_present("traces") {
        return None;
    }
    let place = block.place_of("traces");
    block.faults().record_traces(place);
    let read = |block: &mut MappingReader| {
        block.require("endpoint", "endpoint: http://127.0.0.1:4318");
        let collector = block.value("endpoint", collector);
        let service_name = block.value("service_name", scalar::name);
        let one_in = block.value("one_in", scalar::limit).unwrap_or(1);
        Some(TraceExportSettings {
            collector: collector?,
            service_name: service_name.unwrap_or_else(|| "fencegate".to_owned()),
            one_in: u32::try_from(one_in).unwrap_or(u32::MAX),
        })
    };
    block.read_inner("traces", read).flatten()
}

/// Reads the `host:port` of a collector of traces, with plain HTTP. Spans may contain names of customers, so
/// the collector should run beside the gateway and use TLS to others.
fn collector(text: &str) -> Result<String, Diagnostic> {
    let remedy = "write `http://host:port`, such as `http://127.0.0.1:4318`; a collector beside the gateway speaks \
                  TLS to others";
    match scalar::endpoint(text) {
        Ok((Scheme::Http, authority)) => Ok(authority),
        _ => {
            let message = format!("`{text}` is not the endpoint of a collector");
            Err(Diagnostic::new(DiagnosticCode::BadEndpoint, message).with_remedy(remedy))
        }
    }
}
