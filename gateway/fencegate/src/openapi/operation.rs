//! The operations of a document, with the values from which their keys could be made.

use fencegate_policies::diagnostics::{Diagnostic, DiagnosticCode};
use serde_json::{Map, Value};

use super::{
    document::OpenApiDocument,
    schema::{KeyValueFormat, RequiredMember, RequiredMembers},
};

/// One operation: a method of a path.
#[derive(Debug)]
pub(super) struct ApiOperation {
    /// The method in upper case.
    pub(super) method: String,
    /// The path as the document writes it.
    pub(super) path: String,
    pub(super) parameters: Vec<ApiParameter>,
    pub(super) body: ApiRequestBody,
    /// The parts of the operation that could not be read.
    pub(super) unread: Vec<String>,
    /// True if the operation or its path has `servers` of its own, so that the path may begin in another way.
    pub(super) has_own_servers: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiParameter {
    pub(super) name: String,
    pub(super) place: ParameterPlace,
    pub(super) is_required: bool,
    /// The form of the value; `None` if the value is neither a text nor an integer.
    pub(super) form: Option<KeyValueFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterPlace {
    Path,
    Query,
    Header,
}

/// The body of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApiRequestBody {
    None,
    /// A body in JSON, or a form.
    Values {
        /// The values that every body has, sorted by their sources.
        values: Vec<RequiredBodyValue>,
        /// True if a request may come without a body.
        is_optional: bool,
        /// True if the body may also come in another format.
        has_other_format: bool,
    },
    /// A body only in formats from which no key can be made.
    Other,
}

/// A value that every body has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequiredBodyValue {
    /// The source as a key writes it: `body:/order_id` or `form.order_id`.
    pub(super) source: String,
    pub(super) name: String,
    pub(super) form: KeyValueFormat,
}

/// A format of bodies from which a key can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyFormat {
    Json,
    Form,
}

impl BodyFormat {
    /// The format of a content type; `None` for one from which no key can be made.
    fn from_content_type(kind: &str) -> Option<Self> {
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match &*kind {
            "application/x-www-form-urlencoded" | "multipart/form-data" => Some(Self::Form),
            "application/json" => Some(Self::Json),
            other => other.ends_with("+json").then_some(Self::Json),
        }
    }

    /// The source by which a key names the value at a pointer; `None` if a key cannot name it.
    fn source(self, pointer: &str) -> Option<String> {
        match self {
            Self::Json => Some(format!("body:{pointer}")),
            // A form has fields and lists of fields, and no values within these.
            Self::Form => {
                let name = pointer.strip_prefix('/')?;
                let (name, list) = name.strip_suffix("/*").map_or((name, ""), |name| (name, "*"));
                let is_plain = !name.is_empty() && !name.contains(['/', '~', '*', '[', ']']);
                is_plain.then(|| format!("form.{name}{list}"))
            }
        }
    }
}

/// The methods that a path can have, in the usual order of documents.
const METHODS: [&str; 8] = ["get", "head", "options", "trace", "put", "post", "patch", "delete"];

/// The most operations that are read: each may become a route, and a gateway compares the routes of a file
/// with each other.
const MOST: usize = 5000;

impl ApiOperation {
    /// True if the method is safe: a request changes nothing (RFC 9110, section 9.2.1).
    pub(super) fn is_read(&self) -> bool {
        matches!(&*self.method, "GET" | "HEAD" | "OPTIONS" | "TRACE")
    }

    /// The form of a path parameter; any text if the document does not describe it.
    pub(super) fn path_form(&self, name: &str) -> KeyValueFormat {
        let of_path =
            |parameter: &&ApiParameter| parameter.place == ParameterPlace::Path && parameter.name == name;
        let form = self.parameters.iter().find(of_path).and_then(|parameter| parameter.form.clone());
        form.unwrap_or(KeyValueFormat::Text)
    }

    fn read(document: &OpenApiDocument, path: &str, item: &Map<String, Value>, method: &str) -> Option<Self> {
        let operation = item.get(method)?.as_object()?;
        let mut read = Self {
            method: method.to_ascii_uppercase(),
            path: path.to_owned(),
            parameters: Vec::new(),
            body: ApiRequestBody::None,
            unread: Vec::new(),
            has_own_servers: false,
        };
        for of in [item, operation] {
            read.has_own_servers |= of.contains_key("servers");
            for parameter in of.get("parameters").and_then(Value::as_array).into_iter().flatten() {
                read.add_parameter(document, parameter);
            }
        }
        if let Some(body) = operation.get("requestBody") {
            read.add_body(document, body);
        }
        Some(read)
    }

    /// Adds a parameter. A parameter of the operation replaces one of the path with the same name and place.
    fn add_parameter(&mut self, document: &OpenApiDocument, parameter: &Value) {
        let resolved = match document.resolve(parameter) {
            Ok(resolved) => resolved,
            Err(error) => return self.unread.push(format!("of a parameter: {error}")),
        };
        let text = |name: &str| resolved.get(name).and_then(Value::as_str);
        let place = match text("in") {
            Some("path") => ParameterPlace::Path,
            Some("query") => ParameterPlace::Query,
            Some("header") => ParameterPlace::Header,
            _ => return,
        };
        let Some(name) = text("name").map(str::to_owned) else { return };
        let is_required = resolved.get("required").and_then(Value::as_bool).unwrap_or(false);
        let form = resolved.get("schema").and_then(|schema| KeyValueFormat::from_schema(document, schema));
        self.parameters.retain(|other| other.place != place || other.name != name);
        self.parameters.push(ApiParameter { name, place, is_required, form });
    }

    fn add_body(&mut self, document: &OpenApiDocument, body: &Value) {
        let body = match document.resolve(body) {
            Ok(body) => body,
            Err(error) => return self.unread.push(format!("of the body: {error}")),
        };
        let contents = body.get("content").and_then(Value::as_object).into_iter().flatten();
        let formats: Vec<_> =
            contents.map(|(kind, content)| (BodyFormat::from_content_type(kind), content)).collect();
        let first = |format: BodyFormat| formats.iter().find(|(known, _)| *known == Some(format));
        let Some((Some(format), content)) = first(BodyFormat::Json).or_else(|| first(BodyFormat::Form))
        else {
            self.body = ApiRequestBody::Other;
            return;
        };
        let has_other_format = formats.iter().any(|(known, _)| *known != Some(*format));
        let schema = content.get("schema");
        let found = schema.map(|schema| RequiredMembers::from_schema(document, schema)).unwrap_or_default();
        if found.is_partial {
            self.unread.push("not all of the members that its body has could be read".into());
        }
        let value = |RequiredMember { pointer, name, form }| {
            Some(RequiredBodyValue { source: format.source(&pointer)?, name, form })
        };
        let mut values: Vec<_> = found.members.into_iter().filter_map(value).collect();
        values.sort_by(|one, other| one.source.cmp(&other.source));
        let is_optional = body.get("required").and_then(Value::as_bool) != Some(true);
        self.body = ApiRequestBody::Values { values, is_optional, has_other_format };
    }
}

/// The operations of a document.
#[derive(Debug)]
pub(super) struct ApiOperations {
    /// The operations, path by path as in the document.
    pub(super) operations: Vec<ApiOperation>,
    /// The paths whose operations could not be read.
    pub(super) unread_paths: Vec<String>,
}

impl ApiOperations {
    /// Reads all operations of a document.
    ///
    /// # Errors
    /// Returns a diagnostic if there is no operation, or if there are more than [`MOST`].
    pub(super) fn read(document: &OpenApiDocument) -> Result<Self, Diagnostic> {
        let mut read = Self { operations: Vec::new(), unread_paths: Vec::new() };
        // Names that begin with `x-` are extensions, not paths.
        let paths = document.paths().into_iter().flatten().filter(|(path, _)| !path.starts_with("x-"));
        for (path, item) in paths {
            let resolved = document.resolve(item).ok().and_then(Value::as_object);
            let Some(item) = resolved.filter(|_| path.starts_with('/')) else {
                read.unread_paths.push(path.clone());
                continue;
            };
            let operations =
                METHODS.iter().filter_map(|method| ApiOperation::read(document, path, item, method));
            read.operations.extend(operations);
            if read.operations.len() > MOST {
                let message = format!("the file has more than {MOST} operations");
                let remedy = "make several files of it, each with a part of the `paths`, and import each";
                return Err(Diagnostic::new(DiagnosticCode::OpenApiUnreadable, message).with_remedy(remedy));
            }
        }
        if read.operations.is_empty() {
            let message = "no path of the file has an operation that can be read";
            let remedy = "write the methods of each path below it: `paths: {/orders: {post: {...}}}`";
            return Err(Diagnostic::new(DiagnosticCode::NotOpenApi, message).with_remedy(remedy));
        }
        Ok(read)
    }
}
