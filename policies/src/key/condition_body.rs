//! A JSON body as far as the conditions of routes need it.

use super::{
    error::ParseBodyError,
    json::{JsonScalar, JsonValues},
    pointer::JsonPointer,
};
use crate::graphql::GraphqlOperation;

/// A body, read for the conditions of every route that may take its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionBody {
    values: JsonValues,
    /// Where a route asks for it.
    graphql: Option<GraphqlOperation>,
}

impl ConditionBody {
    /// `query`: that of the URL. `reads_graphql`: some condition asks what the request can do, as GraphQL.
    ///
    /// # Errors
    /// Another reader could take other values from it, or it is no JSON object.
    pub(crate) fn parse<'p>(
        bytes: &[u8],
        query: Option<&str>,
        pointers: impl Iterator<Item = &'p JsonPointer>,
        reads_graphql: bool,
    ) -> Result<Self, ParseBodyError> {
        let values = JsonValues::parse(bytes, pointers, JsonValues::LARGEST_IN_DOUBLE)?;
        // A list may be several requests in one, and of another value no member is known.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(ParseBodyError::NotObject);
        }
        Ok(Self { values, graphql: reads_graphql.then(|| GraphqlOperation::classify(bytes, query)) })
    }

    /// `None` where the body has no such value, or where no pointer named the value when the body was read.
    pub(crate) fn value_at(&self, pointer: &JsonPointer) -> Option<&JsonScalar> {
        self.values.value_at(pointer)
    }

    pub(crate) fn graphql(&self) -> Option<GraphqlOperation> {
        self.graphql
    }
}
