//! Reads which origins may read the responses of a listener (CORS).

use super::{mapping::MappingReader, scalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    header_name::is_http_token,
    plan::{AllowedOrigins, CorsSettings, OriginPattern, ParseOriginError},
};

/// The CORS settings; `None` if the listener has no `cors`, or if a mistake in it has been reported.
pub(super) fn cors(listener: &mut MappingReader) -> Option<CorsSettings> {
    listener.is_present("cors").then(|| listener.read_inner("cors", settings)).flatten()?
}

fn settings(block: &mut MappingReader) -> Option<CorsSettings> {
    let allow_origins = allowed_origins(block);
    let allow_methods = words(block, "allow_methods", scalar::method, &CorsSettings::METHODS);
    let allow_headers = words(block, "allow_headers", header_name, &CorsSettings::HEADERS);
    let expose_headers = words(block, "expose_headers", header_name, &CorsSettings::EXPOSED);
    let allow_credentials =
        block.keyword("allow_credentials", &[("true", true), ("false", false)]).unwrap_or(false);
    let max_age = block.value("max_age", scalar::duration).unwrap_or(CorsSettings::MAX_AGE);
    if allow_credentials && allow_origins == Some(AllowedOrigins::Any) {
        let message = "any page of the world could read answers in the name of its visitor, so browsers take no `*` with credentials";
        let remedy =
            "list the origins: `allow_origins: [\"https://app.example\"]`, or leave `allow_credentials` out";
        block.report(
            "allow_credentials",
            Diagnostic::new(DiagnosticCode::BadOrigin, message).with_remedy(remedy),
        );
    }
    Some(CorsSettings {
        allow_origins: allow_origins?,
        allow_methods: allow_methods?,
        allow_headers: allow_headers?,
        expose_headers: expose_headers?,
        allow_credentials,
        max_age,
    })
}

fn allowed_origins(block: &mut MappingReader) -> Option<AllowedOrigins> {
    block.require("allow_origins", "allow_origins: [\"https://app.example\"]");
    let origins = block.values("allow_origins", origin)?;
    if origins.is_empty() {
        let fault = Diagnostic::new(DiagnosticCode::BadOrigin, "an empty list of origins allows no page");
        let remedy = "leave `cors` out, or write `[\"https://app.example\"]`";
        block.report("allow_origins", fault.with_remedy(remedy));
        return None;
    }
    let listed: Option<Vec<OriginPattern>> = origins.into_iter().collect();
    Some(listed.map_or(AllowedOrigins::Any, AllowedOrigins::Listed))
}

/// Reads one origin; `Ok(None)` for `*`, every origin.
fn origin(text: &str) -> Result<Option<OriginPattern>, Diagnostic> {
    if text == AllowedOrigins::ANY {
        return Ok(None);
    }
    OriginPattern::parse(text).map(Some).map_err(|bad| {
        let message = match bad {
            ParseOriginError::Null => format!("`{text}` is {bad}, whoever has made it"),
            _ => format!("`{text}` is no origin that a browser sends: {bad}"),
        };
        let remedy = match bad {
            ParseOriginError::Null => "name the origins that are meant, such as `https://app.example`",
            _ => "write scheme, host and, if it is not the default one, port, in lower case and without a slash at the end: `https://app.example`, `http://localhost:5173`, `https://*.app.example` for all below it, or `*`",
        };
        Diagnostic::new(DiagnosticCode::BadOrigin, message).with_remedy(remedy)
    })
}

/// A list with a default. An empty list is kept, because it means that nothing is allowed.
fn words(
    block: &mut MappingReader,
    field: &'static str,
    parse: impl Fn(&str) -> Result<String, Diagnostic>,
    default: &[&str],
) -> Option<Vec<String>> {
    let written = block.values(field, parse);
    let is_written = block.is_present(field);
    if is_written { written } else { Some(default.iter().map(|word| (*word).to_owned()).collect()) }
}

/// Reads the name of a header field. `*` is refused: with credentials browsers take it for a field of that name,
/// and it never covers `Authorization`.
fn header_name(text: &str) -> Result<String, Diagnostic> {
    if is_http_token(text) && text != "*" {
        return Ok(text.to_owned());
    }
    let message = format!("`{text}` is not the name of a header field");
    let remedy = "name each field, such as `X-Request-Id`: browsers do not take `*` for `Authorization`";
    Err(Diagnostic::new(DiagnosticCode::BadFieldName, message).with_remedy(remedy))
}
