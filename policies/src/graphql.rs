//! Distinguishes GraphQL requests that can only read from all others, whichever server reads them.
//!
//! The document decides which operation runs, and neither the name of the operation nor `operationName` does: `mutation
//! GetOrder { ... }` is a valid document, and a client chooses both names. So a request counts as a query only if its
//! document contains neither the word `mutation` nor the word `subscription`, at any place. GraphQL cannot express such
//! an operation without its word: a name has no escapes, and ends at the first character that no name contains (GraphQL
//! of October 2021, section 2.1.9). This holds for every parser, even for one that ends comments and strings elsewhere
//! than others do. The result of a single parser would hold for that parser alone.
//!
//! The server must run the document that was examined. Persisted documents are named by other members (`extensions`,
//! `id`, `documentId`) or by a text in `query` that is no document, and several servers prefer a `query` in the URL to
//! the one in the body. So the text must also parse as a document of queries alone, with a single operation or the one
//! that the request names. Any other request may be a mutation.

use std::collections::BTreeMap;

use apollo_parser::{Parser, cst::Definition};
use serde::{Deserialize, de::IgnoredAny};

use crate::words::words;

/// The effect that a GraphQL request can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphqlOperation {
    /// The request only reads.
    Query,
    /// The request may change something. Every request that is not certainly a query counts as one.
    Mutation,
}

words! { GraphqlOperation { Query = "query", Mutation = "mutation" } }

/// A GraphQL request over HTTP. Members that could name another document are not accepted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct GraphqlRequest {
    query: String,
    operation_name: Option<String>,
    /// The variables. They must be an object: some servers take a list for several requests.
    #[serde(rename = "variables")]
    _variables: Option<BTreeMap<String, IgnoredAny>>,
    extensions: Option<BTreeMap<String, IgnoredAny>>,
}

/// The extension that Apollo Client sends with each request. Other extensions may name a document.
const CLIENT_LIBRARY: &str = "clientLibrary";

/// The deepest nesting of selections, values or types. Clients nest far fewer levels, and the parser is recursive.
const DEEPEST: usize = 64;

/// The most tokens of a document, because a worker thread does nothing else while it parses one.
const MOST_TOKENS: usize = 10_000;

impl GraphqlOperation {
    /// The pointer to the member with the document.
    pub(crate) const DOCUMENT: &str = "/query";
    /// The member with the name of one of the document's operations.
    pub(crate) const NAME: &str = "operationName";
    /// The member with the values of the document's variables.
    pub(crate) const VARIABLES: &str = "variables";

    /// Classifies a request. `body`: a JSON object in which no two members have the same name. `query`: the query of
    /// the URL.
    pub(crate) fn classify(body: &[u8], query: Option<&str>) -> Self {
        let request = serde_json::from_slice::<GraphqlRequest>(body);
        let only_reads = request.is_ok_and(|request| {
            let GraphqlRequest { query: document, operation_name, extensions, .. } = request;
            extensions.is_none_or(|extensions| extensions.keys().all(|name| name == CLIENT_LIBRARY))
                && !has_word(&document, "mutation")
                && !has_word(&document, "subscription")
                // An empty name counts as absent, as it does for servers.
                && is_query_only(&document, operation_name.as_deref().filter(|name| !name.is_empty()))
        });
        if only_reads && query.is_none_or(str::is_empty) { Self::Query } else { Self::Mutation }
    }
}

/// Whether a document has only queries and fragments, and runs one of them: the query named `wanted`, or without a name
/// the only query.
fn is_query_only(document: &str, wanted: Option<&str>) -> bool {
    let tree = Parser::new(document).recursion_limit(DEEPEST).token_limit(MOST_TOKENS).parse();
    if tree.errors().len() > 0 {
        return false;
    }
    let mut names = Vec::new();
    for definition in tree.document().definitions() {
        match definition {
            Definition::OperationDefinition(operation) => {
                // A selection without a keyword is a query.
                if operation.operation_type().is_some_and(|kind| kind.query_token().is_none()) {
                    return false;
                }
                names.push(operation.name().map(|name| name.text().to_string()));
            }
            Definition::FragmentDefinition(_) => {}
            _ => return false,
        }
    }
    match (wanted, &*names) {
        (None, [_]) => true,
        (None, _) => false,
        (Some(wanted), names) => {
            let named = names.iter().filter(|name| name.as_deref() == Some(wanted)).count();
            named == 1 && names.iter().all(Option::is_some)
        }
    }
}

/// Whether `word` occurs in a document, in upper or lower case, and not as the beginning of a longer name. A preceding
/// digit does not hide it: for some readers a name ends there, and for others a number.
fn has_word(document: &str, word: &str) -> bool {
    let document = document.to_ascii_lowercase();
    let is_whole = |at: usize| {
        let before = document.as_bytes()[..at].last();
        let behind = document.as_bytes().get(at + word.len());
        !before.is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
            && !behind.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    };
    document.match_indices(word).any(|(at, _)| is_whole(at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn classify(body: &str) -> GraphqlOperation {
        GraphqlOperation::classify(body.as_bytes(), None)
    }

    fn classify_document(document: &str) -> GraphqlOperation {
        classify(&serde_json::json!({"query": document}).to_string())
    }

    /// A document without the words of other operations counts as a query.
    #[test]
    fn document_without_mutation_is_query() {
        for document in [
            "{ order(id: 7) { total } }",
            "query GetOrder($id: ID!) { order(id: $id) { total mutations: changes } }",
            "query A { a ...F } fragment F on T { b }",
            "{ __schema { mutationType { name } subscriptionType { name } } }",
            "{ mutation_count is_mutation }",
            "\u{feff}# reads\n{ a, b }",
        ] {
            assert_eq!(classify_document(document), GraphqlOperation::Query, "{document}");
        }
        for body in [
            r#"{"query": "query A {a}", "operationName": "A", "variables": {"a": "mutation"}}"#,
            r#"{"query": "query A {a} query B {b}", "operationName": "B"}"#,
            r#"{"query": "query A {a}", "operationName": ""}"#,
            r#"{"query": "{a}", "operationName": null, "variables": null, "extensions": null}"#,
            r#"{"query": "{a}", "extensions": {}}"#,
            r#"{"query": "{a}", "extensions": {"clientLibrary": {"name": "@apollo/client", "version": "4.0.0"}}}"#,
        ] {
            assert_eq!(classify(body), GraphqlOperation::Query, "{body}");
        }
    }

    /// A document in which some reader could find a mutation counts as a mutation, wherever the word is.
    #[test]
    fn document_with_word_may_be_mutation() {
        for document in [
            "mutation { pay }",
            "mutation GetOrder { pay }",
            "query GetOrder { a } mutation Pay { pay }",
            "{a}mutation{pay}",
            "\u{feff}mutation{pay}",
            "MUTATION { pay }",
            "subscription { a }",
            // Readers from before block strings (June 2018) end the first string after `"""a "`.
            r#"{ f(x: ["""a " ]) } mutation M { pay } #"""]) }"#,
            // For some readers U+2028 ends the line, and with it the comment.
            "{ a } #\u{2028}mutation M { pay }",
            "{ a } # mutation",
            r#"{ search(text: "mutation") }"#,
            "{ f(a: 1)}1mutation M{pay}",
            // Documents that do not consist of queries alone, or that leave open which query runs.
            "",
            "# nothing",
            "getOrder",
            "9f86d081884c7d65",
            "{",
            "{ a } }",
            "{}",
            "query A { a } query B { b }",
            "{ a } { b }",
            "fragment F on T { a }",
            "type T { a: A } { a }",
            "{ a } extend type T { a: A }",
            "{ a } { b } query C { c }",
        ] {
            assert_eq!(classify_document(document), GraphqlOperation::Mutation, "{document}");
        }
        assert_eq!(classify(r#"{"query": "\u006dutation { pay }"}"#), GraphqlOperation::Mutation);
    }

    /// A request that may name another document does not count as a query.
    #[test]
    fn request_for_other_document_may_be_mutation() {
        for body in [
            "{}",
            r#"{"query": null}"#,
            r#"{"query": ["{a}"]}"#,
            r#"{"id": "getOrder"}"#,
            r#"{"query": "{a}", "id": "pay"}"#,
            r#"{"query": "{a}", "documentId": "pay"}"#,
            r#"{"query": "{a}", "mutation": "mutation {pay}"}"#,
            r#"{"query": "{a}", "operationName": "A"}"#,
            r#"{"query": "query A {a}", "operationName": "B"}"#,
            r#"{"query": "query A {a}", "operationName": ["A"]}"#,
            r#"{"query": "query A {a} query A {b}", "operationName": "A"}"#,
            r#"{"query": "query A {a} {b}", "operationName": "A"}"#,
            r#"{"query": "{a}", "variables": [{}, {}]}"#,
            r#"{"query": "{a}", "variables": "{}"}"#,
            r#"{"query": "{a}", "extensions": {"persistedQuery": {"sha256Hash": "0"}}}"#,
            r#"{"query": "{a}", "extensions": []}"#,
            r#"[{"query": "{a}"}]"#,
        ] {
            assert_eq!(classify(body), GraphqlOperation::Mutation, "{body}");
        }
        let with_url = |query| GraphqlOperation::classify(br#"{"query": "{a}"}"#, query);
        assert_eq!(with_url(Some("")), GraphqlOperation::Query);
        assert_eq!(with_url(Some("query=mutation{pay}")), GraphqlOperation::Mutation);
        assert_eq!(with_url(Some("op=GetOrder")), GraphqlOperation::Mutation);
    }

    /// A document that takes a parser long, or that is nested deeply, does not count as a query.
    #[test]
    fn large_document_may_be_mutation() {
        let nested = |depth: usize| format!("{}a{}", "{a".repeat(depth), "}".repeat(depth));
        let list = |depth: usize| format!("{{a(x: {}{})}}", "[".repeat(depth), "]".repeat(depth));
        let wide = |fields: usize| format!("{{{}}}", "a ".repeat(fields));
        for document in [nested(20), list(20), wide(1000)] {
            assert_eq!(classify_document(&document), GraphqlOperation::Query, "{document}");
        }
        for document in [nested(100), list(100), wide(20_000), nested(100_000), list(100_000)] {
            assert_eq!(classify_document(&document), GraphqlOperation::Mutation, "{}", document.len());
        }
    }

    proptest! {
        /// A mutation is found whatever surrounds it.
        #[test]
        fn mutation_is_found_anywhere(before in "([ -~\\n]{0,12}[^A-Za-z_])?", behind in "([^A-Za-z0-9_][ -~\\n]{0,12})?") {
            let document = format!("{before}mutation{behind}");
            prop_assert_eq!(classify_document(&document), GraphqlOperation::Mutation);
        }

        #[test]
        fn any_bytes_classify_without_panic(body: Vec<u8>) {
            GraphqlOperation::classify(&body, None);
        }

        /// No sequence of tokens makes the classification panic.
        #[test]
        fn any_tokens_classify_without_panic(
            tokens in prop::collection::vec(
                prop::sample::select(vec![
                    "{", "}", "(", ")", "[", "]", ":", "!", "=", "$", "@", "&", "|", "...", ",", "\"", "\"\"\"", "\\u", "\\u{1F4A9}",
                    "#", "\n", "a", "on", "query", "fragment", "type", "extend", "schema", "input", "enum", "union",
                    "directive", "interface", "scalar", "implements", "repeatable", "1", "-1.5e3", "\u{feff}", "\u{e9}", "\0",
                ]),
                0..40,
            ),
        ) {
            let document = tokens.join(" ");
            classify_document(&document);
            classify_document(&tokens.concat());
        }
    }
}
