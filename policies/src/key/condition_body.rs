//! A JSON body as far as the conditions of routes need it.

use std::iter;

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
    /// The pointers for which it was read.
    pointers: Vec<JsonPointer>,
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
        let pointers: Vec<JsonPointer> = pointers.cloned().collect();
        let values = JsonValues::parse(bytes, pointers.iter(), iter::empty(), JsonValues::LARGEST_IN_DOUBLE)?;
        // A list may be several requests in one, and of another value no member is known.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(ParseBodyError::NotObject);
        }
        let graphql = reads_graphql.then(|| GraphqlOperation::classify(bytes, query));
        Ok(Self { values, pointers, graphql })
    }

    /// True if the body was read for a condition on the member to which the pointer leads.
    pub(crate) fn is_read_for(&self, pointer: &JsonPointer) -> bool {
        self.pointers.contains(pointer)
    }

    /// `None` where the body has no such value, or where no pointer named the value when the body was read.
    pub(crate) fn value_at(&self, pointer: &JsonPointer) -> Option<&JsonScalar> {
        self.values.value_at(pointer)
    }

    /// True if something else than an object or `null` stands where the pointer leads on to a value.
    pub(crate) fn is_blocked(&self, pointer: &JsonPointer) -> bool {
        self.values.is_blocked(pointer)
    }

    pub(crate) fn graphql(&self) -> Option<GraphqlOperation> {
        self.graphql
    }
}
