//! The parts of a request from which a service may read a value of a key.

use super::template::Source;

/// A part of a request in which values have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSource {
    /// Variables of the route's path.
    Path,
    /// Parameters of the query.
    Query,
    /// Fields of a body in `application/x-www-form-urlencoded` or `multipart/form-data`.
    Form,
    /// Members of the outermost object of a JSON body.
    Json,
    Cookie,
}

impl RequestSource {
    pub const WORDS: [(&str, Self); 5] = [
        ("path", Self::Path),
        ("query", Self::Query),
        ("form", Self::Form),
        ("json", Self::Json),
        ("cookie", Self::Cookie),
    ];

    /// `None` for a header field and the host: their names mean something else in other sources.
    pub(super) fn of(source: &Source) -> Option<Self> {
        match source {
            Source::Path(_) => Some(Self::Path),
            Source::Query(_) => Some(Self::Query),
            Source::Body(_) => Some(Self::Json),
            Source::Header(_) | Source::Host => None,
        }
    }
}

/// Which other sources of a request are compared with the values of its keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Conflicts {
    /// Every source, except that a path variable and a member of a JSON body are not compared with each other: public
    /// APIs have members such as `id` that mean something else than the path does.
    #[default]
    RefuseUsual,
    /// These sources, which are all that the service reads.
    Refuse(Vec<RequestSource>),
    /// None.
    Pass,
}

impl Conflicts {
    /// True if a value of `other` may not differ from the value of that name in `own`.
    pub(super) fn compares(&self, own: RequestSource, other: RequestSource) -> bool {
        let pair = |one, two| (own, other) == (one, two) || (own, other) == (two, one);
        own != other
            && match self {
                Self::RefuseUsual => !pair(RequestSource::Path, RequestSource::Json),
                Self::Refuse(read) => read.contains(&other),
                Self::Pass => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_compared_unless_it_is_usual_or_said_that_the_service_does_not_read_it() {
        use RequestSource::{Cookie, Form, Json, Path, Query};
        let usual = Conflicts::RefuseUsual;
        assert!([Query, Form, Cookie].into_iter().all(|other| usual.compares(Path, other)));
        assert!([Query, Form, Cookie].into_iter().all(|other| usual.compares(Json, other)));
        assert!(usual.compares(Query, Json) && usual.compares(Query, Path));
        assert!(!usual.compares(Path, Json) && !usual.compares(Json, Path) && !usual.compares(Path, Path));
        let listed = Conflicts::Refuse(vec![Path, Json]);
        assert!(listed.compares(Path, Json) && !listed.compares(Path, Query) && !listed.compares(Json, Json));
        assert!(!Conflicts::Pass.compares(Json, Query));
    }
}
