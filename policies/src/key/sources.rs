//! The parts of a request from which a service may read a value that is in a key.

use super::template::TemplateValueSource;

/// A part of a request that contains named values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterLocation {
    /// The variables of the route's path.
    Path,
    /// The parameters of the query.
    Query,
    /// The fields of a body in `application/x-www-form-urlencoded` or `multipart/form-data`.
    Form,
    /// The members of the outermost object of a JSON body.
    Json,
    /// The elements and attributes of an XML body. Their values are not compared: none may have the name.
    Xml,
    Cookie,
    /// The members of an object that is itself a member of a JSON body, and query parameters that name such a member:
    /// `order[sku]`. Rails puts the members of a body into an object with the name of the controller (`ParamsWrapper`),
    /// unless the request has an object of that name.
    Wrapped,
}

impl ParameterLocation {
    pub const WORDS: [(&str, Self); 7] = [
        ("path", Self::Path),
        ("query", Self::Query),
        ("form", Self::Form),
        ("json", Self::Json),
        ("xml", Self::Xml),
        ("cookie", Self::Cookie),
        ("wrapped", Self::Wrapped),
    ];

    /// The location of a source. `None` for a header field, the host, and verified values of the client: their names
    /// have other meanings in other locations.
    pub(super) fn from_source(source: &TemplateValueSource) -> Option<Self> {
        match source {
            TemplateValueSource::Path(_) => Some(Self::Path),
            TemplateValueSource::Query(_) | TemplateValueSource::QueryList(_) => Some(Self::Query),
            TemplateValueSource::Form(_) | TemplateValueSource::FormList(_) => Some(Self::Form),
            TemplateValueSource::Body(_) => Some(Self::Json),
            TemplateValueSource::Header(_)
            | TemplateValueSource::HeaderList(_)
            | TemplateValueSource::Host
            | TemplateValueSource::ClientName
            | TemplateValueSource::Jwt(_) => None,
        }
    }
}

/// The other sources of a request that are compared with the values of its keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SourceConflictPolicy {
    /// Every source is compared, and a conflict is refused.
    #[default]
    RefuseAny,
    /// Only these sources are compared, because the service reads no others. A conflict is refused.
    Refuse(Vec<ParameterLocation>),
    /// No source is compared.
    Pass,
}

impl SourceConflictPolicy {
    /// Whether a value in `other` must not differ from the value of the same name in `own`.
    pub(super) fn compares(&self, own: ParameterLocation, other: ParameterLocation) -> bool {
        // Only the members of a JSON body can be wrapped in another object.
        let can_differ = match other {
            ParameterLocation::Wrapped => own == ParameterLocation::Json,
            _ => own != other,
        };
        can_differ && self.compared_sources().any(|(_, source)| source == other)
    }

    /// The compared sources, each with its word in a policy.
    pub fn compared_sources(&self) -> impl Iterator<Item = (&'static str, ParameterLocation)> {
        let counts = |source: &ParameterLocation| match self {
            Self::RefuseAny => true,
            Self::Refuse(read) => read.contains(source),
            Self::Pass => false,
        };
        ParameterLocation::WORDS.into_iter().filter(move |(_, source)| counts(source))
    }

    pub(crate) const REFUSE: &str = "refuse";
    pub(crate) const PASS: &str = "pass";

    /// The word in a policy.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::RefuseAny | Self::Refuse(_) => Self::REFUSE,
            Self::Pass => Self::PASS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source is compared unless the route declares that the service does not read it.
    #[test]
    fn source_is_compared_unless_excluded() {
        use ParameterLocation::{Cookie, Form, Json, Path, Query, Wrapped, Xml};
        let any = SourceConflictPolicy::default();
        assert!([Query, Form, Json, Xml, Cookie].into_iter().all(|other| any.compares(Path, other)));
        assert!([Path, Query, Form, Cookie, Wrapped].into_iter().all(|other| any.compares(Json, other)));
        assert!(!any.compares(Path, Path) && !any.compares(Json, Json) && !any.compares(Query, Wrapped));
        let listed = SourceConflictPolicy::Refuse(vec![Path, Json]);
        assert!(listed.compares(Path, Json) && !listed.compares(Path, Query) && !listed.compares(Json, Json));
        assert!(!listed.compares(Json, Wrapped));
        assert!(!SourceConflictPolicy::Pass.compares(Json, Query));
        let words = |conflicts: SourceConflictPolicy| {
            conflicts.compared_sources().map(|(word, _)| word).collect::<Vec<_>>()
        };
        assert_eq!(words(any), ["path", "query", "form", "json", "xml", "cookie", "wrapped"]);
        assert_eq!((words(listed), words(SourceConflictPolicy::Pass)), (vec!["path", "json"], Vec::new()));
    }
}
