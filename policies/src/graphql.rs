//! Tells GraphQL requests that can only read from all others, whichever server reads them.
//!
//! What runs is in the document, and neither its name nor `operationName` says it: `mutation GetOrder { ... }` is a
//! document as good as any, and a client chooses both. So a request counts as a query where its document has neither
//! the word `mutation` nor the word `subscription` in it, at any place. GraphQL cannot write such an operation without
//! its word: a name has no escapes, and its end is the first character that no name has (GraphQL of October 2021,
//! 2.1.9). That holds for each parser, also for one that ends comments and strings elsewhere than others do; what one
//! parser says of a document holds for that parser alone.
//!
//! It has to be that document which the server runs. Persisted documents are named by further members (`extensions`,
//! `id`, `documentId`), and several servers read `query` in the URL over the one in the body. A request with anything of
//! this kind may be a mutation.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, de::IgnoredAny};

use crate::words::words;

/// What a GraphQL request can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphqlOperation {
    /// It only reads.
    Query,
    /// It may change something: every request that is not certainly a query.
    Mutation,
}

words! { GraphqlOperation { Query = "query", Mutation = "mutation" } }

/// A request over HTTP, with the members that do not say which document runs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphqlRequest<'b> {
    #[serde(borrow)]
    query: Cow<'b, str>,
    #[serde(default, rename = "operationName")]
    _operation_name: IgnoredAny,
    #[serde(default, rename = "variables")]
    _variables: IgnoredAny,
    extensions: Option<BTreeMap<String, IgnoredAny>>,
}

/// The extension that Apollo Client sends with each request. Others may name a document.
const CLIENT_LIBRARY: &str = "clientLibrary";

impl GraphqlOperation {
    /// The pointer to the member with the document.
    pub(crate) const DOCUMENT: &str = "/query";
    /// The member with the name of one of the document's operations.
    pub(crate) const NAME: &str = "operationName";
    /// The member with the values of the document's variables.
    pub(crate) const VARIABLES: &str = "variables";

    /// `body`: a JSON object in which no two members have one name. `query`: that of the URL.
    pub(crate) fn classify(body: &[u8], query: Option<&str>) -> Self {
        let request = serde_json::from_slice::<GraphqlRequest<'_>>(body);
        let only_reads = request.is_ok_and(|GraphqlRequest { query: document, extensions, .. }| {
            extensions.is_none_or(|extensions| extensions.keys().all(|name| name == CLIENT_LIBRARY))
                && !has_word(&document, "mutation")
                && !has_word(&document, "subscription")
        });
        if only_reads && query.is_none_or(str::is_empty) { Self::Query } else { Self::Mutation }
    }
}

/// True if `word`, in lower case, stands in a document in any case and is not the beginning of a longer name. A digit before
/// it is the end of a name to some readers, and the end of a number to others.
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

    /// A document without the words of other operations only reads.
    #[test]
    fn document_without_mutation_is_query() {
        for document in [
            "{ order(id: 7) { total } }",
            "query GetOrder($id: ID!) { order(id: $id) { total mutations: changes } }",
            "query A { a } query B { b }",
            "{ __schema { mutationType { name } subscriptionType { name } } }",
            "{ mutation_count is_mutation }",
            "",
        ] {
            assert_eq!(classify_document(document), GraphqlOperation::Query, "{document}");
        }
        for body in [
            r#"{"query": "{a}", "operationName": "mutation", "variables": {"a": "mutation"}}"#,
            r#"{"query": "{a}", "operationName": null, "variables": null, "extensions": null}"#,
            r#"{"query": "{a}", "extensions": {}}"#,
            r#"{"query": "{a}", "extensions": {"clientLibrary": {"name": "@apollo/client", "version": "4.0.0"}}}"#,
        ] {
            assert_eq!(classify(body), GraphqlOperation::Query, "{body}");
        }
    }

    /// Whatever some reader could take for a mutation is one, wherever it stands in the document.
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
            // Readers from before block strings (June 2018) end the first string here.
            r#"{ f(x: ["""a " ]) } mutation M { pay } #"""]) }"#,
            // A reader for whom a line ends here ends the comment.
            "{ a } #\u{2028}mutation M { pay }",
            "{ a } # mutation",
            r#"{ search(text: "mutation") }"#,
            "{ f(a: 1)}1mutation M{pay}",
        ] {
            assert_eq!(classify_document(document), GraphqlOperation::Mutation, "{document}");
        }
        assert_eq!(classify(r#"{"query": "\u006dutation { pay }"}"#), GraphqlOperation::Mutation);
    }

    /// A request that may name another document is no query.
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

    proptest! {
        /// A mutation is found whatever stands around it.
        #[test]
        fn mutation_is_found_anywhere(before in "([ -~\\n]{0,12}[^A-Za-z_])?", behind in "([^A-Za-z0-9_][ -~\\n]{0,12})?") {
            let document = format!("{before}mutation{behind}");
            prop_assert_eq!(classify_document(&document), GraphqlOperation::Mutation);
        }

        #[test]
        fn any_bytes_classify_without_panic(body: Vec<u8>) {
            GraphqlOperation::classify(&body, None);
        }
    }
}
