//! Builds an OpenAPI document from the description of each operation and the types of its answers.

use std::collections::BTreeMap;

use fencegate_refusal::{Refusal, RefusalProblemJson, RefusalReason};
use serde_json::json;
use utoipa::{
    IntoParams, ToSchema,
    openapi::{
        AllOfBuilder, ComponentsBuilder, Content, ContentBuilder, HttpMethod, InfoBuilder, LicenseBuilder,
        ObjectBuilder, OpenApiBuilder, PathItem, Paths, Ref, RefOr, Required, ResponseBuilder, Schema,
        SecurityRequirement, Server,
        path::{OperationBuilder, ParameterBuilder, ParameterIn},
        request_body::RequestBodyBuilder,
        schema::Type,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use crate::error::{AdminErrorBody, AdminErrorCode};

/// A document under construction.
pub(super) struct OpenApiDocumentBuilder {
    title: &'static str,
    says: &'static str,
    server: &'static str,
    /// The description of the credential.
    bearer: &'static str,
    paths: Paths,
    schemas: BTreeMap<String, RefOr<Schema>>,
}

/// One operation of the document.
pub(super) struct OpenApiOperationBuilder<'d> {
    of: &'d mut OpenApiDocumentBuilder,
    method: HttpMethod,
    path: &'static str,
    written: OperationBuilder,
    faults: Vec<AdminErrorCode>,
    refusals: Vec<RefusalReason>,
    answers: BTreeMap<u16, ResponseBuilder>,
}

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";
const BEARER: &str = "bearer";

/// The pattern of printable ASCII without spaces, which all keys and references match.
const VISIBLE: &str = "^[!-~]+$";

impl OpenApiDocumentBuilder {
    pub(super) fn new(title: &'static str, server: &'static str, says: &'static str) -> Self {
        let bearer = "The token of `admin.auth`. A listener without it asks for none.";
        Self { title, says, server, bearer, paths: Paths::new(), schemas: BTreeMap::new() }
    }

    /// Describes a credential other than the token of an admin listener.
    pub(super) fn with_bearer_description(self, bearer: &'static str) -> Self {
        Self { bearer, ..self }
    }

    /// Adds an operation that is not on an admin listener.
    ///
    /// # Panics
    /// Panics if the method is unknown.
    pub(super) fn public_listener_operation(
        &mut self,
        method: &str,
        path: &'static str,
        name: &str,
        says: &str,
    ) -> OpenApiOperationBuilder<'_> {
        let method = match method {
            "get" => HttpMethod::Get,
            "post" => HttpMethod::Post,
            "delete" => HttpMethod::Delete,
            other => panic!("{other} is no method of ours"),
        };
        self.operation(method, path, name, says, Vec::new())
    }

    /// Adds an operation that reads.
    pub(super) fn get(&mut self, path: &'static str, name: &str, says: &str) -> OpenApiOperationBuilder<'_> {
        self.operation(
            HttpMethod::Get,
            path,
            name,
            says,
            vec![AdminErrorCode::Host, AdminErrorCode::Credentials, AdminErrorCode::Late],
        )
    }

    /// Adds an operation that changes something.
    pub(super) fn post(&mut self, path: &'static str, name: &str, says: &str) -> OpenApiOperationBuilder<'_> {
        let faults = vec![
            AdminErrorCode::Host,
            AdminErrorCode::Credentials,
            AdminErrorCode::CrossOrigin,
            AdminErrorCode::Late,
            AdminErrorCode::Unknown,
        ];
        self.operation(HttpMethod::Post, path, name, says, faults)
    }

    fn operation(
        &mut self,
        method: HttpMethod,
        path: &'static str,
        name: &str,
        says: &str,
        faults: Vec<AdminErrorCode>,
    ) -> OpenApiOperationBuilder<'_> {
        let written = OperationBuilder::new().operation_id(Some(name)).summary(Some(says));
        OpenApiOperationBuilder {
            of: self,
            method,
            path,
            written,
            faults,
            refusals: Vec::new(),
            answers: BTreeMap::new(),
        }
    }

    /// A reference to the schema of a type. The schema becomes part of the document, with all schemas that it
    /// needs.
    fn schema<T: ToSchema>(&mut self) -> Ref {
        let mut others = Vec::new();
        T::schemas(&mut others);
        self.schemas.extend(others);
        self.schemas.insert(T::name().into_owned(), T::schema());
        Ref::from_schema_name(T::name())
    }

    pub(super) fn document(self) -> String {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(self.bearer));
        let components = self
            .schemas
            .into_iter()
            .fold(ComponentsBuilder::new(), |all, (name, schema)| all.schema(name, schema))
            .security_scheme(BEARER, SecurityScheme::Http(bearer.build()));
        let license = LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0"));
        let info = InfoBuilder::new()
            .title(self.title)
            .version(env!("CARGO_PKG_VERSION"))
            .description(Some(self.says))
            .license(Some(license.build()));
        let document = OpenApiBuilder::new()
            .info(info)
            .servers(Some([Server::new(self.server)]))
            .paths(self.paths)
            .components(Some(components.build()))
            .security(Some([SecurityRequirement::new::<_, [&str; 0], &str>(BEARER, [])]))
            .build();
        document.to_pretty_json().expect("plain fields serialise") + "\n"
    }
}

impl OpenApiOperationBuilder<'_> {
    /// Marks the operation as open to probes and guards, which have no credentials.
    pub(super) fn open_to_all(mut self) -> Self {
        self.faults.retain(|word| *word != AdminErrorCode::Credentials);
        self.written = self.written.securities(Some([]));
        self
    }

    /// Places the operation on this server instead of the admin listener.
    pub(super) fn with_operation_server(mut self, server: &str) -> Self {
        self.faults.clear();
        self.written = self.written.securities(Some([])).server(Server::new(server));
        self
    }

    /// Adds a parameter of the path.
    pub(super) fn path_param(self, name: &str, says: &str) -> Self {
        self.path_param_like(name, VISIBLE, says)
    }

    pub(super) fn path_param_like(mut self, name: &str, pattern: &str, says: &str) -> Self {
        let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).build();
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(says))
            .schema(Some(text));
        self.written = self.written.parameter(parameter);
        self
    }

    /// Adds a required header field.
    pub(super) fn header_param(self, name: &str, pattern: &str, says: &str) -> Self {
        self.header(name, pattern, says, Required::True)
    }

    pub(super) fn optional_header_param(self, name: &str, pattern: &str, says: &str) -> Self {
        self.header(name, pattern, says, Required::False)
    }

    fn header(mut self, name: &str, pattern: &str, says: &str, required: Required) -> Self {
        let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).build();
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Header)
            .required(required)
            .description(Some(says))
            .schema(Some(text));
        self.written = self.written.parameter(parameter);
        self
    }

    /// Marks the operation as one that needs no credential.
    pub(super) fn without_credential(mut self) -> Self {
        self.written = self.written.securities(Some([]));
        self
    }

    /// Adds the parameters of the query.
    pub(super) fn query_params<T: IntoParams>(mut self) -> Self {
        let parameters = T::into_params(|| Some(ParameterIn::Query));
        self.written = self.written.parameters(Some(parameters));
        self.malformed_input(&[AdminErrorCode::Malformed])
    }

    /// Adds the required body.
    pub(super) fn required_body<T: ToSchema>(self) -> Self {
        self.body::<T>(Required::True)
    }

    /// Adds the optional body.
    pub(super) fn optional_body<T: ToSchema>(self) -> Self {
        self.body::<T>(Required::False)
    }

    fn body<T: ToSchema>(mut self, required: Required) -> Self {
        let content = ContentBuilder::new().schema(Some(self.of.schema::<T>())).build();
        let body = RequestBodyBuilder::new().required(Some(required)).content(JSON, content).build();
        self.written = self.written.request_body(Some(body));
        self.malformed_input(&[AdminErrorCode::Malformed, AdminErrorCode::TooLarge])
    }

    /// Adds the refusals of malformed input on an admin listener. On other listeners any request can be
    /// malformed, so that is described once.
    fn malformed_input(self, words: &[AdminErrorCode]) -> Self {
        if self.faults.is_empty() { self } else { self.error_responses(words) }
    }

    pub(super) fn json_response<T: ToSchema>(self, status: u16, says: &str) -> Self {
        self.typed_response::<T>(status, JSON, says)
    }

    pub(super) fn typed_response<T: ToSchema>(self, status: u16, kind: &str, says: &str) -> Self {
        let content = ContentBuilder::new().schema(Some(self.of.schema::<T>())).build();
        self.add_response(status, says, |answer| answer.content(kind, content))
    }

    /// Adds an answer that has no schema in this document.
    pub(super) fn raw_response(self, status: u16, kind: &str, says: &str) -> Self {
        let text = ObjectBuilder::new().schema_type(Type::String).build();
        let content = ContentBuilder::new().schema(Some(text)).build();
        self.add_response(status, says, |answer| answer.content(kind, content))
    }

    /// Adds an answer without a body.
    pub(super) fn empty_response(self, status: u16, says: &str) -> Self {
        self.add_response(status, says, |answer| answer)
    }

    fn add_response(
        mut self,
        status: u16,
        says: &str,
        with: impl FnOnce(ResponseBuilder) -> ResponseBuilder,
    ) -> Self {
        let answer = self.answers.remove(&status).unwrap_or_default().description(says);
        self.answers.insert(status, with(answer));
        self
    }

    pub(super) fn error_responses(mut self, words: &[AdminErrorCode]) -> Self {
        self.faults.extend(words);
        self
    }

    /// Adds refusals of the request path.
    pub(super) fn refusal_responses(mut self, reasons: &[RefusalReason]) -> Self {
        self.refusals.extend(reasons);
        self
    }

    pub(super) fn finish(mut self) {
        let faults = std::mem::take(&mut self.faults);
        let faults = faults.into_iter().map(|word| {
            let name = json!(word).as_str().unwrap_or_default().to_owned();
            (word.status().as_u16(), name, error_description(word))
        });
        for (status, (reasons, says)) in group_by_status(faults) {
            let content = with_reason(self.of.schema::<AdminErrorBody>(), reasons);
            self = self.add_response(status, &says, |answer| answer.content(JSON, content));
        }
        let refusals = std::mem::take(&mut self.refusals);
        let refusals = refusals.into_iter().map(|reason| {
            (Refusal::new(reason, "").status().as_u16(), reason.word().to_owned(), reason.title())
        });
        for (status, (reasons, says)) in group_by_status(refusals) {
            let content = with_reason(self.of.schema::<RefusalProblemJson>(), reasons);
            self = self.add_response(status, &says, |answer| answer.content(PROBLEM, content));
        }
        let answers = self.answers.into_iter();
        let written = answers
            .fold(self.written, |all, (status, answer)| all.response(status.to_string(), answer.build()));
        let item = PathItem::new(self.method, written);
        match self.of.paths.paths.get_mut(self.path) {
            Some(there) => there.merge_operations(item),
            None => drop(self.of.paths.paths.insert(self.path.to_owned(), item)),
        }
    }
}

/// Groups reasons and their descriptions by status, each reason once.
fn group_by_status(
    all: impl Iterator<Item = (u16, String, &'static str)>,
) -> BTreeMap<u16, (Vec<String>, String)> {
    let mut found: BTreeMap<u16, (Vec<String>, String)> = BTreeMap::new();
    for (status, reason, says) in all {
        let (reasons, descriptions) = found.entry(status).or_default();
        if !reasons.contains(&reason) {
            let between = if descriptions.is_empty() { "" } else { "; " };
            descriptions.push_str(&format!("{between}`{reason}`: {says}"));
            reasons.push(reason);
        }
    }
    found
}

/// A body with one of these reasons.
fn with_reason(body: Ref, reasons: Vec<String>) -> Content {
    let reason = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(reasons));
    let one_of = ObjectBuilder::new().property("reason", reason);
    let body = AllOfBuilder::new().item(body).item(one_of).build();
    ContentBuilder::new().schema(Some(Schema::AllOf(body))).build()
}

fn error_description(word: AdminErrorCode) -> &'static str {
    match word {
        AdminErrorCode::Host => "the listener does not have that name",
        AdminErrorCode::CrossOrigin => "a page of another origin may change nothing",
        AdminErrorCode::Credentials => "the token is missing or wrong",
        AdminErrorCode::Open => {
            "only authenticated callers may do this, and the listener asks for no credentials"
        }
        AdminErrorCode::Confirm => "the confirmation does not match",
        AdminErrorCode::Malformed => "the request cannot be read",
        AdminErrorCode::TooLarge => "the body has more than 16 KiB",
        AdminErrorCode::NotFound => "nothing has that name",
        AdminErrorCode::Method => "the path has another method",
        AdminErrorCode::Changed => "the subject has changed meanwhile; nothing was done",
        AdminErrorCode::Force => "the request is unsafe and lacks `force`; nothing was done",
        AdminErrorCode::Elsewhere => "another process does this",
        AdminErrorCode::Away => "the process that could do this does not answer; nothing was done",
        AdminErrorCode::Late => "no answer in time; the request may still be carried out",
        AdminErrorCode::Unknown => "all of it or a part may have been done: look again",
    }
}
