//! The keys that the gateway makes from the same texts. No key may be made from another value than the one that a
//! reader takes.

use fencegate_policies::{
    file::load,
    key::{
        BodyValues, ContentDeclaration, ExtractKeyError, HeaderLookup, InvalidKeyError, RequestValues,
        ResourceKey, RouteConditionBody,
    },
    path::CanonicalPath,
    plan::{CommonServingPlan, FenceRule, FindRouteError},
};

use super::reading::{ParserReading, ParserReadingRow, RequestPart, parse_hex};

/// The number of results of each kind, over all rows and readers.
#[derive(Debug, Default)]
pub struct KeyReadingCounts {
    /// The key is made from the value that the reader takes.
    pub same: usize,
    /// The gateway finds no value, and the reader finds none or an empty one, or refuses the text.
    pub absent: usize,
    /// The gateway refuses the request, although the reader takes a value from it.
    pub refused: usize,
}

/// Reads values from requests as the gateway does.
pub struct KeyReader(CommonServingPlan);

const POLICY: &str = r#"
version: 1
listeners: {public: {address: "127.0.0.1:8080"}}
zookeeper: {servers: ["127.0.0.1:2181"]}
upstreams: {orders: {endpoints: ["http://127.0.0.1:8000"], fencing: upstream}}
routes:
  - {name: query, upstream: orders, match: {path: "/query"}, fence: {key: "{query.account_id}"}}
  - {name: body, upstream: orders, match: {path: "/body"}, fence: {key: "{body:/id}"}}
  - {name: exact, upstream: orders, match: {path: "/exact"}, fence: {key: "{body:/id}", exact_numbers: true}}
  - {name: query-operation, upstream: orders, match: {path: "/graphql", graphql: query}, fence: none}
  - {name: other-operation, upstream: orders, match: {path: "/graphql", graphql: mutation}, fence: {key: all}}
"#;

const JSON: ContentDeclaration<'static> =
    ContentDeclaration { kind: HeaderLookup::One(b"application/json"), coding: HeaderLookup::Absent };

/// A request with the text as one of its parts.
#[derive(Default)]
struct SampleRequest<'a> {
    query: Option<&'a str>,
    body: Option<BodyValues>,
    condition_body: Option<RouteConditionBody>,
}

impl RequestValues for SampleRequest<'_> {
    fn query(&self) -> Option<&str> {
        self.query
    }

    fn body(&self) -> Option<&BodyValues> {
        self.body.as_ref()
    }

    fn condition_body(&self) -> Option<&RouteConditionBody> {
        self.condition_body.as_ref()
    }
}

impl Default for KeyReader {
    fn default() -> Self {
        let loaded = load(POLICY);
        Self(loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics)).serving)
    }
}

impl KeyReader {
    /// The value from which a key is made: [`ParserReading::Nothing`] if it is missing, [`ParserReading::Unreadable`] if the
    /// request is refused.
    pub fn reading(&self, part: RequestPart, text: &str) -> ParserReading {
        let key = match part {
            RequestPart::Path => {
                let path = CanonicalPath::parse(text);
                let decoded: String = path.segments().map(|segment| format!("/{segment}")).collect();
                return match path.ambiguity() {
                    None => ParserReading::Text(decoded.into()),
                    Some(_) => ParserReading::Unreadable,
                };
            }
            RequestPart::Query => self
                .fence("query")
                .expand_all(&SampleRequest { query: Some(text), ..SampleRequest::default() }),
            RequestPart::Body => return self.body_reading("body", text),
            RequestPart::Graphql => panic!("no key is made of a document"),
        };
        Self::key_reading(key)
    }

    /// The value of a member of a JSON body, on a route for a service that reads integers of 64 bits exactly.
    pub fn exact_reading(&self, text: &str) -> ParserReading {
        self.body_reading("exact", text)
    }

    /// True if a request with this GraphQL document takes the route for documents that only read.
    ///
    /// # Panics
    /// If the request is refused.
    pub fn passes_as_graphql_query(&self, document: &str) -> bool {
        let body = serde_json::json!({"query": document}).to_string();
        let path = CanonicalPath::parse("/graphql");
        let routes = &self.0.routes;
        let Err(FindRouteError::BodyNeeded(candidates)) =
            routes.find("POST", &path, &SampleRequest::default())
        else {
            panic!("no body is needed")
        };
        let condition_body = routes.read_body(&candidates, &JSON, body.as_bytes(), None).ok();
        let request = SampleRequest { condition_body, ..SampleRequest::default() };
        let found = routes.find("POST", &path, &request).expect(document).expect("one of the two");
        *found.route.name == *"query-operation"
    }

    fn body_reading(&self, route: &str, text: &str) -> ParserReading {
        let fence = self.fence(route);
        match fence.parse_body(&JSON, text.as_bytes()) {
            Ok(body) => Self::key_reading(
                fence.expand_all(&SampleRequest { body: Some(body), ..SampleRequest::default() }),
            ),
            Err(_) => ParserReading::Unreadable,
        }
    }

    fn key_reading(key: Result<Vec<ResourceKey>, ExtractKeyError>) -> ParserReading {
        match key.as_deref() {
            Ok([key]) => ParserReading::Text(unescape(key).expect("an escaped value")),
            Ok(_) => panic!("one template, and several keys"),
            Err(ExtractKeyError::Missing { .. }) => ParserReading::Nothing,
            Err(_) => ParserReading::Unreadable,
        }
    }

    fn fence(&self, route: &str) -> &FenceRule {
        let route = self.0.routes.routes().iter().find(|one| *one.name == *route).expect("a route");
        route.fence.as_ref().expect("a fence")
    }

    /// Compares each row with the gateway's reading, and counts the results.
    ///
    /// # Errors
    /// Returns an error if a key would be made from another value than the one that a reader takes.
    pub fn compare(&self, part: RequestPart, rows: &[ParserReadingRow]) -> Result<KeyReadingCounts, String> {
        let mut seen = KeyReadingCounts::default();
        for row in rows {
            let ours = self.reading(part, &row.text);
            for (name, theirs) in &row.readings {
                match (&ours, theirs) {
                    (ParserReading::Text(ours), ParserReading::Text(theirs)) if ours == theirs => {
                        seen.same += 1
                    }
                    // A service that refuses a request changes nothing, so the key does not matter.
                    (ParserReading::Text(_), ParserReading::Unreadable) => {}
                    (ParserReading::Nothing, ParserReading::Nothing | ParserReading::Unreadable) => {
                        seen.absent += 1
                    }
                    // For the gateway an empty value is a missing one.
                    (ParserReading::Nothing, ParserReading::Text(theirs)) if theirs.is_empty() => {
                        seen.absent += 1
                    }
                    (ParserReading::Unreadable, ParserReading::Text(_) | ParserReading::Other) => {
                        seen.refused += 1
                    }
                    (ParserReading::Unreadable, _) => {}
                    _ => {
                        return Err(format!(
                            "{:?}: {name} reads {theirs}, and a key is made of {ours}",
                            row.text
                        ));
                    }
                }
            }
        }
        Ok(seen)
    }
}

/// The value from which a key was made, without the key's escapes.
fn unescape(key: &ResourceKey) -> Result<Vec<u8>, InvalidKeyError> {
    let mut bytes = Vec::new();
    let mut rest = key.as_str().as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let mut byte = *first;
        if byte == b'%' {
            let (digits, after) = rest.split_at_checked(2).ok_or(InvalidKeyError)?;
            byte = parse_hex(str::from_utf8(digits).map_err(|_| InvalidKeyError)?).ok_or(InvalidKeyError)?[0];
            rest = after;
        }
        bytes.push(byte);
    }
    Ok(bytes)
}
