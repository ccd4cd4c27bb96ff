//! Puts an OpenAPI document together, of what is said of each operation and of the types of its answers.

use std::collections::BTreeMap;

use serde_json::json;
use utoipa::{
    IntoParams, ToSchema,
    openapi::{
        AllOfBuilder, ComponentsBuilder, ContentBuilder, HttpMethod, InfoBuilder, LicenseBuilder,
        ObjectBuilder, OpenApiBuilder, PathItem, Paths, Ref, RefOr, Required, ResponseBuilder, Schema,
        SecurityRequirement, Server,
        path::{OperationBuilder, ParameterBuilder, ParameterIn},
        request_body::RequestBodyBuilder,
        schema::Type,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use crate::admin::fault::{FaultTold, Word};

/// A document that is being written.
pub(super) struct Described {
    title: &'static str,
    says: &'static str,
    server: &'static str,
    paths: Paths,
    schemas: BTreeMap<String, RefOr<Schema>>,
}

/// One operation of it.
pub(super) struct PathOperation<'d> {
    of: &'d mut Described,
    method: HttpMethod,
    path: &'static str,
    written: OperationBuilder,
    faults: Vec<Word>,
}

const JSON: &str = "application/json";
const BEARER: &str = "bearer";

/// Printable ASCII without spaces, as all keys and references are. With escapes, 170 of them are never too long.
const VISIBLE: &str = "^[!-~]+$";

impl Described {
    pub(super) fn new(title: &'static str, server: &'static str, says: &'static str) -> Self {
        Self { title, says, server, paths: Paths::new(), schemas: BTreeMap::new() }
    }

    /// Something that is looked at.
    pub(super) fn get(&mut self, path: &'static str, name: &str, says: &str) -> PathOperation<'_> {
        self.operation(HttpMethod::Get, path, (name, says), vec![Word::Host, Word::Credentials, Word::Late])
    }

    /// Something that is done.
    pub(super) fn post(&mut self, path: &'static str, name: &str, says: &str) -> PathOperation<'_> {
        let faults = vec![Word::Host, Word::Credentials, Word::CrossOrigin, Word::Late, Word::Unknown];
        self.operation(HttpMethod::Post, path, (name, says), faults)
    }

    fn operation(
        &mut self,
        method: HttpMethod,
        path: &'static str,
        (name, says): (&str, &str),
        faults: Vec<Word>,
    ) -> PathOperation<'_> {
        let written = OperationBuilder::new().operation_id(Some(name)).summary(Some(says));
        PathOperation { of: self, method, path, written, faults }
    }

    /// A reference to the schema of a type, which is kept with those that it refers to.
    fn schema<T: ToSchema>(&mut self) -> Ref {
        let mut others = Vec::new();
        T::schemas(&mut others);
        self.schemas.extend(others);
        self.schemas.insert(T::name().into_owned(), T::schema());
        Ref::from_schema_name(T::name())
    }

    pub(super) fn document(mut self) -> String {
        // Every operation may end so.
        self.schema::<FaultTold>();
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The token of `admin.auth`. A listener without it asks for none."));
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

impl PathOperation<'_> {
    /// Probes and guards, which have no credentials, may ask it too.
    pub(super) fn open(mut self) -> Self {
        self.faults.retain(|word| *word != Word::Credentials);
        self.written = self.written.securities(Some([]));
        self
    }

    /// Nothing of the admin listener: it is asked for elsewhere.
    pub(super) fn elsewhere(mut self, server: &str) -> Self {
        self.faults.clear();
        self.written = self.written.securities(Some([])).server(Server::new(server));
        self
    }

    /// What the path names.
    pub(super) fn named(mut self, name: &str, says: &str) -> Self {
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some(VISIBLE))
            .max_length(Some(170))
            .build();
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(says))
            .schema(Some(text));
        self.written = self.written.parameter(parameter);
        self
    }

    /// What the query says.
    pub(super) fn asks<T: IntoParams>(mut self) -> Self {
        let parameters = T::into_params(|| Some(ParameterIn::Query));
        self.written = self.written.parameters(Some(parameters));
        self.fails(&[Word::Malformed])
    }

    /// What the body says.
    pub(super) fn given<T: ToSchema>(mut self) -> Self {
        let content = ContentBuilder::new().schema(Some(self.of.schema::<T>())).build();
        let body = RequestBodyBuilder::new().required(Some(Required::True)).content(JSON, content).build();
        self.written = self.written.request_body(Some(body));
        self.fails(&[Word::Malformed, Word::TooLarge])
    }

    pub(super) fn tells<T: ToSchema>(self, status: u16, says: &str) -> Self {
        self.tells_as::<T>(status, JSON, says)
    }

    pub(super) fn tells_as<T: ToSchema>(mut self, status: u16, kind: &str, says: &str) -> Self {
        let content = ContentBuilder::new().schema(Some(self.of.schema::<T>())).build();
        let answer = ResponseBuilder::new().description(says).content(kind, content);
        self.written = self.written.response(status.to_string(), answer.build());
        self
    }

    /// An answer that is no document of ours.
    pub(super) fn shows(mut self, status: u16, kind: &str, says: &str) -> Self {
        let text = ObjectBuilder::new().schema_type(Type::String).build();
        let content = ContentBuilder::new().schema(Some(text)).build();
        let answer = ResponseBuilder::new().description(says).content(kind, content);
        self.written = self.written.response(status.to_string(), answer.build());
        self
    }

    pub(super) fn fails(mut self, words: &[Word]) -> Self {
        self.faults.extend(words);
        self
    }

    pub(super) fn end(mut self) {
        let mut by_status: BTreeMap<u16, Vec<Word>> = BTreeMap::new();
        for word in self.faults {
            let words = by_status.entry(word.status().as_u16()).or_default();
            if !words.contains(&word) {
                words.push(word);
            }
        }
        for (status, words) in by_status {
            let reasons: Vec<_> = words.iter().map(|word| json!(word)).collect();
            let said: Vec<String> = words
                .iter()
                .map(|word| format!("`{}`: {}", json!(word).as_str().unwrap_or_default(), said(*word)))
                .collect();
            let one_of = ObjectBuilder::new().property(
                "reason",
                ObjectBuilder::new().schema_type(Type::String).enum_values(Some(reasons)),
            );
            let fault = AllOfBuilder::new().item(self.of.schema::<FaultTold>()).item(one_of);
            let content = ContentBuilder::new().schema(Some(Schema::AllOf(fault.build()))).build();
            let answer = ResponseBuilder::new().description(said.join("; ")).content(JSON, content);
            self.written = self.written.response(status.to_string(), answer.build());
        }
        let item = PathItem::new(self.method, self.written);
        match self.of.paths.paths.get_mut(self.path) {
            Some(there) => there.merge_operations(item),
            None => drop(self.of.paths.paths.insert(self.path.to_owned(), item)),
        }
    }
}

fn said(word: Word) -> &'static str {
    match word {
        Word::Host => "the listener is not called by that name",
        Word::CrossOrigin => "a page of another origin may change nothing",
        Word::Credentials => "the token is missing, or another one",
        Word::Open => "it is for those who have shown who they are, and the listener asks nobody",
        Word::Confirm => "what was to be confirmed is not what was said",
        Word::Malformed => "it cannot be read",
        Word::TooLarge => "the body has more than 16 KiB",
        Word::NotFound => "there is nothing of that name",
        Word::Method => "it is asked for by another method",
        Word::Changed => "it is not as it was seen any more; nothing was done",
        Word::Force => "it is unsafe, and `force` was not said; nothing was done",
        Word::Elsewhere => "others do that",
        Word::Away => "who could tell or do it does not answer; nothing was done",
        Word::Late => "no answer in time; what was asked for may go on",
        Word::Unknown => "it may have been done, or a part of it: look again",
    }
}
