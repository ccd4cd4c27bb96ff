//! The values of a JSON body that the conditions of routes need.

use std::iter;

use super::{
    error::ParseBodyError,
    json::{JsonScalar, JsonValues},
    pointer::JsonPointer,
};
use crate::graphql::GraphqlOperation;

/// A body that was read for the conditions of every route that may take its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteConditionBody {
    values: JsonValues,
    /// The pointers whose values were read.
    pointers: Vec<JsonPointer>,
    /// The effect of the request as a GraphQL request, if some condition asks for it.
    graphql: Option<GraphqlOperation>,
}

impl RouteConditionBody {
    /// Reads a body for conditions. `query`: the query of the URL. `reads_graphql`: some condition asks for
    /// the effect of the request as a GraphQL request.
    ///
    /// # Errors
    /// Returns an error if another reader could take other values from the body, or if it is no JSON object.
    pub(crate) fn parse<'p>(
        bytes: &[u8],
        query: Option<&str>,
        pointers: impl Iterator<Item = &'p JsonPointer>,
        reads_graphql: bool,
    ) -> Result<Self, ParseBodyError> {
        let pointers: Vec<JsonPointer> = pointers.cloned().collect();
        let values = JsonValues::parse(bytes, pointers.iter(), iter::empty(), JsonValues::LARGEST_IN_DOUBLE)?;
        // Only an object is accepted: a list may be several requests in one, and any other value has no
        // members.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(ParseBodyError::NotObject);
        }
        let graphql = reads_graphql.then(|| GraphqlOperation::classify(bytes, query));
        Ok(Self { values, pointers, graphql })
    }

    /// Whether the body was read for a condition on this member.
    pub(crate) fn is_read_for(&self, pointer: &JsonPointer) -> bool {
        self.pointers.contains(pointer)
    }

    /// The value of a member. `None` if the body does not have it, or was not read for this pointer.
    pub(crate) fn value_at(&self, pointer: &JsonPointer) -> Option<&JsonScalar> {
        self.values.value_at(pointer)
    }

    /// Whether a value other than an object or `null` is on the way of the pointer.
    pub(crate) fn is_blocked(&self, pointer: &JsonPointer) -> bool {
        self.values.is_blocked(pointer)
    }

    pub(crate) fn graphql(&self) -> Option<GraphqlOperation> {
        self.graphql
    }
}
