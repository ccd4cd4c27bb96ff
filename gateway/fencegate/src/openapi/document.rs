//! An OpenAPI document as a tree of values, with its references resolved.

use fencegate_policies::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    file::FieldLocator,
    path::decode_escapes,
};
use serde_json::{Map, Value};
use serde_saphyr::{
    Location, Options, alias_limits,
    options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy},
};

/// A document of version 3.0 or 3.1 that has paths.
#[derive(Debug)]
pub struct OpenApiDocument {
    root: Map<String, Value>,
}

/// The reason for which a reference leads to no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ResolveReferenceError {
    #[error("a `$ref` leads out of the file")]
    Foreign,
    #[error("a `$ref` leads to nothing")]
    Dangling,
    #[error("a `$ref` leads to itself")]
    Circular,
}

impl OpenApiDocument {
    /// The largest file, in bytes. The largest public documents have about 10 MB.
    pub const LARGEST: usize = 16 << 20;

    /// The most references that are followed from one to the next.
    const MOST_REFERENCES: usize = 32;

    /// Reads JSON or YAML.
    ///
    /// # Errors
    /// Returns a diagnostic if the text is neither JSON nor YAML, is too large, or is no OpenAPI document of
    /// version 3.0 or 3.1.
    pub fn parse(text: &str) -> Result<Self, Diagnostic> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let Value::Object(root) = parse_tree(text)? else {
            return Err(not_openapi("the file is no object with the field `openapi`", FIELDS));
        };
        let document = Self { root };
        let place = || FieldLocator::parse(text).find(&["openapi"]);
        let version = match (document.root.get("openapi"), document.root.get("swagger")) {
            (Some(Value::String(version)), _) => version.clone(),
            // In YAML a version without quotes is a number.
            (Some(Value::Number(version)), _) => version.to_string(),
            (Some(_), _) => return Err(with_place(not_openapi("`openapi` is no version", FIELDS), place())),
            (None, Some(_)) => {
                let message = "the file describes an interface in Swagger 2.0, and not in OpenAPI 3";
                let remedy = "convert it to OpenAPI 3.0: editors and generators of OpenAPI do so";
                let place = FieldLocator::parse(text).find(&["swagger"]);
                return Err(with_place(not_openapi(message, remedy), place));
            }
            (None, None) => return Err(not_openapi("the file has no field `openapi`", FIELDS)),
        };
        if !["3.0", "3.1"].iter().any(|known| is_version(&version, known)) {
            let message = format!("the version `{}` of OpenAPI is not known", shorten(&version));
            return Err(with_place(
                not_openapi(&message, "write the description in OpenAPI 3.0 or 3.1"),
                place(),
            ));
        }
        if document.paths().is_none_or(Map::is_empty) {
            let place = FieldLocator::parse(text).find(&["paths"]);
            let remedy = "name a file whose `paths` has the requests of clients: events that a service sends have no routes";
            return Err(with_place(not_openapi("the file has no `paths`", remedy), place));
        }
        Ok(document)
    }

    /// The value of a field at the top of the document.
    pub(super) fn field(&self, name: &str) -> Option<&Value> {
        self.root.get(name)
    }

    pub(super) fn paths(&self) -> Option<&Map<String, Value>> {
        self.field("paths")?.as_object()
    }

    /// The value itself, or the value to which its references lead.
    ///
    /// # Errors
    /// Returns an error if a reference leads to no value of this file, or if references lead in a circle.
    pub(super) fn resolve<'d>(&'d self, value: &'d Value) -> Result<&'d Value, ResolveReferenceError> {
        let mut value = value;
        for _ in 0..Self::MOST_REFERENCES {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else { return Ok(value) };
            let pointer = reference.strip_prefix('#').ok_or(ResolveReferenceError::Foreign)?;
            value = self.at_pointer(pointer).ok_or(ResolveReferenceError::Dangling)?;
        }
        Err(ResolveReferenceError::Circular)
    }

    /// The value to which a JSON pointer leads. `pointer`: as in the fragment of a URL.
    fn at_pointer(&self, pointer: &str) -> Option<&Value> {
        let mut names = pointer.strip_prefix('/')?.split('/').map(decode_pointer_segment);
        let first = self.root.get(&names.next()??)?;
        names.try_fold(first, |value, name| match value {
            Value::Object(members) => members.get(&name?),
            Value::Array(items) => items.get(name?.parse::<usize>().ok()?),
            _ => None,
        })
    }
}

/// Decodes one name of a JSON pointer (RFC 6901, section 6); `None` if it is not UTF-8.
fn decode_pointer_segment(name: &str) -> Option<String> {
    let decoded = String::from_utf8(decode_escapes(name)).ok()?;
    Some(decoded.replace("~1", "/").replace("~0", "~"))
}

fn is_version(version: &str, known: &str) -> bool {
    version.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

const FIELDS: &str =
    "name a description in OpenAPI 3.0 or 3.1: it begins with `openapi: 3.1.0`, and has `paths`";

fn not_openapi(message: &str, remedy: &str) -> Diagnostic {
    Diagnostic::new(DiagnosticCode::NotOpenApi, message).with_remedy(remedy)
}

fn with_place(diagnostic: Diagnostic, place: Option<SourceSpan>) -> Diagnostic {
    match place {
        Some(place) => diagnostic.at(place),
        None => diagnostic,
    }
}

/// Shortens a text of the document for a message.
fn shorten(text: &str) -> String {
    text.chars().take(32).collect()
}

fn parse_tree(text: &str) -> Result<Value, Diagnostic> {
    if text.len() > OpenApiDocument::LARGEST {
        return Err(too_large("the file is larger than 16 MiB"));
    }
    // A YAML mapping may begin with a brace, too, but its first name is then hardly ever in quotes.
    let is_json = text.trim_start().strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with('"'));
    if is_json {
        serde_json::from_str(text).map_err(|error| json_diagnostic(&error))
    } else {
        parse_yaml(text)
    }
}

fn parse_yaml(text: &str) -> Result<Value, Diagnostic> {
    serde_saphyr::from_str_with_options(text, yaml_options()).map_err(|error| {
        let diagnostic = match &error {
            serde_saphyr::Error::Budget { .. }
            | serde_saphyr::Error::AliasReplayLimitExceeded { .. }
            | serde_saphyr::Error::AliasReplayStackDepthExceeded { .. }
            | serde_saphyr::Error::AliasExpansionLimitExceeded { .. }
            | serde_saphyr::Error::AliasReplayCounterOverflow { .. } => {
                too_large("the file is deeper or more repetitive than any description of an interface")
            }
            other => {
                let message = other.to_string();
                let message = message.split(" at line ").next().unwrap_or_default();
                unreadable(&format!("the file is not YAML: {message}"))
            }
        };
        let location = error.location().filter(|location| *location != Location::UNKNOWN);
        with_place(diagnostic, location.map(|location| source_span(location.line(), location.column())))
    })
}

fn json_diagnostic(error: &serde_json::Error) -> Diagnostic {
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    let diagnostic = unreadable(&format!("the file is not JSON: {message}"));
    let number = |given: usize| u64::try_from(given).unwrap_or(u64::MAX);
    diagnostic.at(source_span(number(error.line()), number(error.column())))
}

fn source_span(line: u64, column: u64) -> SourceSpan {
    let number = |given: u64| usize::try_from(given).unwrap_or(usize::MAX).max(1);
    SourceSpan { line: number(line), column: number(column), width: 1 }
}

fn unreadable(message: &str) -> Diagnostic {
    let remedy = "write the description as JSON or as YAML, in UTF-8";
    Diagnostic::new(DiagnosticCode::OpenApiUnreadable, message).with_remedy(remedy)
}

fn too_large(message: &str) -> Diagnostic {
    let remedy = "make several files of it, each with a part of the `paths`, and import each";
    Diagnostic::new(DiagnosticCode::OpenApiUnreadable, message).with_remedy(remedy)
}

fn yaml_options() -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
        // Bounds what nested aliases expand to: a few lines could otherwise become a tree of millions of
        // values.
        alias_limits: alias_limits! { max_total_replayed_events: 100_000 },
        budget: serde_saphyr::budget! {
            max_depth: 96,
            max_nodes: 2_000_000,
            max_events: 5_000_000,
            // The size limit of the file already bounds the comments.
            max_buffered_comment_events: OpenApiDocument::LARGEST,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "openapi: 3.1.0\npaths: {/a: {}}\nx: {a~b: {c/d: [1, {$ref: '#/x/e f'}]}, e f: 7, r: {$ref: '#/x/r'}}\n";

    fn refused(text: &str) -> (&'static str, Option<(usize, usize)>, String) {
        let diagnostic = OpenApiDocument::parse(text).expect_err(text);
        assert!(diagnostic.remedy.is_some(), "{diagnostic:?}");
        let place = diagnostic.place.map(|place| (place.line, place.column));
        (diagnostic.code.number(), place, diagnostic.message)
    }

    /// JSON and YAML of both versions are read, also with a byte order mark, and with a version without
    /// quotes.
    #[test]
    fn json_and_yaml_are_read() {
        for text in [
            MINIMAL,
            r#"{"openapi": "3.0.3", "paths": {"/a": {}}}"#,
            "\u{feff}openapi: 3.0\npaths:\n  /a:\n    get:\n      responses: {200: {description: ok}}\n",
            "{openapi: 3.1.0, paths: {/a: {}}}",
        ] {
            assert!(OpenApiDocument::parse(text).is_ok(), "{text}");
        }
    }

    /// A file that is no OpenAPI document is refused with the place of the mistake.
    #[test]
    fn other_files_are_refused_with_place() {
        assert_eq!(refused("{\"openapi\": \"3.0.0\",\n \"paths\": }").0, "FG0631");
        assert_eq!(refused("{\"openapi\": \"3.0.0\",\n \"paths\": }").1, Some((2, 11)));
        let yaml = refused("openapi: 3.0.0\npaths: [\n");
        assert_eq!(yaml.0, "FG0631");
        assert!(yaml.1.is_some() && yaml.2.starts_with("the file is not YAML"), "{yaml:?}");
        for (text, place) in [
            ("[]", None),
            ("", None),
            ("version: 1\nroutes: []\n", None),
            ("info: {}\nswagger: \"2.0\"\npaths: {/a: {}}\n", Some((2, 10))),
            ("info: {}\nopenapi: 4.0.0\npaths: {/a: {}}\n", Some((2, 10))),
            ("openapi: 3.10.0\npaths: {/a: {}}\n", Some((1, 10))),
            ("openapi: [3]\npaths: {/a: {}}\n", Some((1, 10))),
            ("openapi: 3.1.0\nwebhooks: {}\n", None),
            ("openapi: 3.1.0\npaths: {}\n", Some((2, 8))),
        ] {
            let (code, found, message) = refused(text);
            assert_eq!((code, found), ("FG0632", place), "{text}: {message}");
        }
    }

    /// A file above the size limit is refused before it is parsed. Nested aliases and deep nesting are
    /// refused while it is parsed.
    #[test]
    fn size_is_bounded() {
        let large = format!("openapi: 3.1.0\n# {}\n", "x".repeat(OpenApiDocument::LARGEST));
        let bomb: String = (1..40).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}, *a{0}]\n", n - 1)).collect();
        let deep = format!("openapi: {}", "[".repeat(100_000));
        for text in [large, format!("a0: &a0 [x]\n{bomb}"), deep, format!("{{\"a\": {}", "[".repeat(100_000))]
        {
            assert_eq!(refused(&text).0, "FG0631");
        }
    }

    /// A reference within the file is followed, and any other one gets an error with its reason.
    #[test]
    fn references_stay_in_file() {
        let document = OpenApiDocument::parse(MINIMAL).expect("a document");
        let resolve = |reference: &str| {
            let value = serde_json::json!({ "$ref": reference });
            document.resolve(&value).cloned()
        };
        assert_eq!(resolve("#/x/e%20f"), Ok(7.into()));
        assert_eq!(resolve("#/x/a~0b/c~1d/0"), Ok(1.into()));
        assert_eq!(resolve("#/x/a~0b/c~1d/1"), Ok(7.into()));
        assert_eq!(resolve("#/x/r"), Err(ResolveReferenceError::Circular));
        for dangling in ["#/y", "#", "#x", "#/x/a~0b/c~1d/9", "#/x/%ff"] {
            assert_eq!(resolve(dangling), Err(ResolveReferenceError::Dangling), "{dangling}");
        }
        for foreign in ["other.yaml#/x", "http://h/x", ""] {
            assert_eq!(resolve(foreign), Err(ResolveReferenceError::Foreign), "{foreign}");
        }
    }
}
