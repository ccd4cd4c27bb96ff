//! The path template of a route, such as `/v1/orders/{order_id}/capture`, and the values that it binds.

use std::fmt;

use super::{
    affixed::{AffixedVariable, VariableSuffix},
    canonical::CanonicalPath,
    escape::is_unreserved,
};

/// A parsed path template. A `{name}` binds one whole, non-empty segment, or the part of a segment that the text around
/// the variable leaves. A last `{rest...}` binds all remaining segments, joined by slashes. `/v1/{rest...}` matches
/// `/v1/` (with an empty rest) but not `/v1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTemplate {
    pieces: Vec<PathTemplateSegment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathTemplateSegment {
    /// Exactly this segment. An empty one is a trailing slash.
    Literal(Box<str>),
    Variable(Box<str>),
    /// A variable with text around it.
    Affixed(AffixedVariable),
    /// All remaining segments; always the last piece.
    Rest(Box<str>),
}

/// The part of the last segment of a path that a template writes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LiteralPathSuffix {
    None,
    /// A text with a dot after a variable: `{id}.json`.
    BehindVariable,
    /// The whole segment.
    Whole,
}

/// The mistake in a path template, with the byte offset and length of the part at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct ParsePathTemplateError {
    pub at: usize,
    pub width: usize,
    pub why: &'static str,
}

/// The values that a template's variables have in one path.
#[derive(Debug, Clone, Copy)]
pub struct PathParams<'a> {
    template: &'a PathTemplate,
    path: &'a CanonicalPath,
}

impl PathTemplate {
    /// The most segments of a template. The route table needs one stack frame for each segment.
    const MOST_SEGMENTS: usize = 64;

    pub fn parse(text: &str) -> Result<Self, ParsePathTemplateError> {
        let Some(tail) = text.strip_prefix('/') else {
            return Err(ParsePathTemplateError { at: 0, width: text.len(), why: "a path begins with `/`" });
        };
        let mut pieces: Vec<PathTemplateSegment> = Vec::new();
        let mut at = 1;
        for segment in tail.split('/') {
            let bad = |why| ParsePathTemplateError { at, width: segment.len(), why };
            if matches!(pieces.last(), Some(PathTemplateSegment::Rest(_))) {
                return Err(bad("nothing can follow a `{rest...}`"));
            }
            let piece = PathTemplateSegment::parse(segment).map_err(bad)?;
            if piece.name().is_some_and(|name| pieces.iter().any(|other| other.name() == Some(name))) {
                return Err(bad("a variable is bound twice"));
            }
            let last = at + segment.len() == text.len();
            if segment.is_empty() && !last {
                return Err(ParsePathTemplateError {
                    at: at - 1,
                    width: 2,
                    why: "`//` is never a canonical path",
                });
            }
            if pieces.len() == Self::MOST_SEGMENTS {
                return Err(bad("a template has at most 64 segments"));
            }
            pieces.push(piece);
            at += segment.len() + 1;
        }
        Ok(Self { pieces })
    }

    /// The names of the variables, from left to right.
    pub(crate) fn variable_names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(PathTemplateSegment::name)
    }

    pub fn matches(&self, path: &CanonicalPath) -> bool {
        let mut segments = path.segments();
        for piece in &self.pieces {
            match (piece, segments.next()) {
                (PathTemplateSegment::Rest(_), Some(_)) => return true,
                (PathTemplateSegment::Literal(literal), Some(segment)) if **literal == *segment => {}
                (PathTemplateSegment::Variable(_), Some(segment)) if !segment.is_empty() => {}
                (PathTemplateSegment::Affixed(affixed), Some(segment))
                    if affixed.value(segment).is_some() => {}
                _ => return false,
            }
        }
        segments.next().is_none()
    }

    /// Whether this template matches every path that `other` matches. A simple implementation, with which tests compare
    /// the fast one.
    #[cfg(test)]
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let mut theirs = other.pieces.iter();
        for ours in &self.pieces {
            match (ours, theirs.next()) {
                (PathTemplateSegment::Rest(_), Some(_)) => return true,
                (PathTemplateSegment::Literal(a), Some(PathTemplateSegment::Literal(b))) if a == b => {}
                (PathTemplateSegment::Variable(_), Some(PathTemplateSegment::Variable(_))) => {}
                (PathTemplateSegment::Variable(_), Some(PathTemplateSegment::Literal(literal)))
                    if !literal.is_empty() => {}
                (PathTemplateSegment::Variable(_), Some(PathTemplateSegment::Affixed(_))) => {}
                (PathTemplateSegment::Affixed(ours), Some(PathTemplateSegment::Affixed(theirs)))
                    if ours.covers(theirs) => {}
                (PathTemplateSegment::Affixed(ours), Some(PathTemplateSegment::Literal(literal)))
                    if ours.value(literal).is_some() => {}
                _ => return false,
            }
        }
        theirs.next().is_none()
    }

    /// Whether some path matches both templates.
    #[cfg(test)]
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let mut ours = self.pieces.iter();
        let mut theirs = other.pieces.iter();
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (None, Some(_)) | (Some(_), None) => return false,
                (Some(PathTemplateSegment::Rest(_)), Some(_))
                | (Some(_), Some(PathTemplateSegment::Rest(_))) => {
                    return true;
                }
                (Some(PathTemplateSegment::Literal(a)), Some(PathTemplateSegment::Literal(b))) if a != b => {
                    return false;
                }
                (Some(PathTemplateSegment::Literal(literal)), Some(PathTemplateSegment::Variable(_)))
                | (Some(PathTemplateSegment::Variable(_)), Some(PathTemplateSegment::Literal(literal)))
                    if literal.is_empty() =>
                {
                    return false;
                }
                (Some(PathTemplateSegment::Affixed(ours)), Some(PathTemplateSegment::Affixed(theirs)))
                    if !ours.has_common_segment(theirs) =>
                {
                    return false;
                }
                (
                    Some(PathTemplateSegment::Literal(literal)),
                    Some(PathTemplateSegment::Affixed(affixed)),
                )
                | (
                    Some(PathTemplateSegment::Affixed(affixed)),
                    Some(PathTemplateSegment::Literal(literal)),
                ) if affixed.value(literal).is_none() => {
                    return false;
                }
                _ => {}
            }
        }
    }

    /// The position of a variable: the number of its segment, counted from 0. It is followed by `...` if the variable
    /// binds all remaining segments, or by the text around the variable if there is some.
    pub(crate) fn variable_position(&self, variable: &str) -> String {
        let at = self.pieces.iter().position(|piece| piece.name() == Some(variable));
        match at.map(|at| (at, &self.pieces[at])) {
            Some((at, PathTemplateSegment::Rest(_))) => format!("{at}..."),
            Some((at, PathTemplateSegment::Affixed(affixed))) => {
                format!("{at} {}", affixed.segment_pattern())
            }
            Some((at, _)) => at.to_string(),
            // The path does not bind the variable. This only happens to a template that was not checked against its
            // path.
            None => format!("path.{variable}"),
        }
    }

    /// The part of the end of a path that the template writes out, with a suffix if it has one.
    pub(crate) fn written_suffix(&self) -> LiteralPathSuffix {
        match self.pieces.last() {
            Some(PathTemplateSegment::Literal(_)) => LiteralPathSuffix::Whole,
            Some(PathTemplateSegment::Affixed(affixed)) if affixed.writes_suffix() => {
                LiteralPathSuffix::BehindVariable
            }
            _ => LiteralPathSuffix::None,
        }
    }

    /// The template with its text in lower case, for services that ignore case when they find their routes.
    pub(crate) fn to_lowercase(&self) -> Self {
        let lower = |piece: &PathTemplateSegment| match piece {
            PathTemplateSegment::Literal(literal) => {
                PathTemplateSegment::Literal(literal.to_ascii_lowercase().into())
            }
            PathTemplateSegment::Affixed(affixed) => PathTemplateSegment::Affixed(affixed.to_lowercase()),
            PathTemplateSegment::Variable(_) | PathTemplateSegment::Rest(_) => piece.clone(),
        };
        Self { pieces: self.pieces.iter().map(lower).collect() }
    }

    /// The template as it is read by services that ignore case, a trailing slash or a suffix: in lower case, with and
    /// without a trailing slash, and without each suffix that it writes out. A variable at the end is left as it is.
    pub(crate) fn alternate_readings(&self) -> Vec<Self> {
        let lowercase = self.to_lowercase().pieces;
        let is_slash = |piece: &PathTemplateSegment| matches!(piece, PathTemplateSegment::Literal(literal) if literal.is_empty());
        let other_end = match lowercase.as_slice() {
            [_] if is_slash(&lowercase[0]) => None,
            [.., PathTemplateSegment::Rest(_)] => None,
            [bare @ .., last] if is_slash(last) => Some(bare.to_vec()),
            bare => Some([bare, &[PathTemplateSegment::Literal("".into())]].concat()),
        };
        let mut readings: Vec<Vec<PathTemplateSegment>> =
            [Some(lowercase), other_end].into_iter().flatten().collect();
        let suffixed = readings.iter().flat_map(|pieces| {
            let (before, last) = match pieces.as_slice() {
                [before @ .., last] => (before, last.without_suffixes()),
                [] => (&[][..], Vec::new()),
            };
            last.into_iter().map(move |last| [before, &[last]].concat())
        });
        let suffixed: Vec<_> = suffixed.collect();
        readings.extend(suffixed);
        readings.into_iter().map(|pieces| Self { pieces }).collect()
    }

    /// Whether this template writes out each segment that `other` writes out, in any spelling. Then its author knew
    /// those paths, and did not cover them by a variable by accident.
    pub(crate) fn writes_segments_of(&self, other: &Self) -> bool {
        let mut ours = self.pieces.iter();
        for theirs in &other.pieces {
            match (ours.next(), theirs) {
                (_, PathTemplateSegment::Rest(_)) => return true,
                (Some(PathTemplateSegment::Literal(_)), _)
                | (Some(PathTemplateSegment::Affixed(_)), PathTemplateSegment::Affixed(_))
                | (
                    Some(PathTemplateSegment::Variable(_) | PathTemplateSegment::Affixed(_)),
                    PathTemplateSegment::Variable(_),
                ) => {}
                // The other template has only a trailing slash more.
                (None, PathTemplateSegment::Literal(literal)) => return literal.is_empty(),
                _ => return false,
            }
        }
        true
    }

    pub(crate) fn pieces(&self) -> &[PathTemplateSegment] {
        &self.pieces
    }
}

impl PathTemplateSegment {
    fn parse(segment: &str) -> Result<Self, &'static str> {
        let whole = segment.strip_prefix('{').and_then(|open| open.strip_suffix('}'));
        if let Some(inside) = whole.filter(|inside| !inside.contains(['{', '}'])) {
            let (name, rest) = match inside.strip_suffix("...") {
                Some(name) => (name, true),
                None => (inside, false),
            };
            if !is_variable_name(name) {
                return Err("a variable is a letter or `_`, then letters, digits and `_`");
            }
            return Ok(if rest { Self::Rest(name.into()) } else { Self::Variable(name.into()) });
        }
        if let Some((before, behind)) = segment.split_once('{') {
            return Self::parse_affixed(before, behind).map(Self::Affixed);
        }
        check_literal(segment)?;
        Ok(Self::Literal(segment.into()))
    }

    fn parse_affixed(before: &str, behind: &str) -> Result<AffixedVariable, &'static str> {
        let (name, after) = behind.split_once('}').ok_or("a `{` without its `}`")?;
        if name.ends_with("...") {
            return Err("a `{rest...}` has no text around it");
        }
        if !is_variable_name(name) {
            return Err("a variable is a letter or `_`, then letters, digits and `_`");
        }
        check_characters(before)?;
        let format = after.strip_prefix("{.").and_then(|open| open.strip_suffix("?}"));
        let after = match format {
            Some(format) if is_variable_name(format) => VariableSuffix::Format(format.into()),
            Some(_) => return Err("a format is written `{.format?}`"),
            None if after.contains('{') => {
                return Err("a segment has one variable, and `{.format?}` at its end");
            }
            None => {
                check_characters(after)?;
                VariableSuffix::Literal(after.into())
            }
        };
        Ok(AffixedVariable { name: name.into(), before: before.into(), after })
    }

    /// The forms that the segment may have for a service that removes a suffix: the text before each of its dots.
    fn without_suffixes(&self) -> Vec<Self> {
        match self {
            Self::Literal(literal) => {
                let dots = literal.match_indices('.').filter(|(dot, _)| *dot > 0);
                dots.map(|(dot, _)| Self::Literal(literal[..dot].into())).collect()
            }
            Self::Affixed(affixed) => {
                let segment = |cut: AffixedVariable| match cut.is_bare() {
                    true => Self::Variable(cut.name),
                    false => Self::Affixed(cut),
                };
                affixed.without_suffixes().map(segment).collect()
            }
            Self::Variable(_) | Self::Rest(_) => Vec::new(),
        }
    }

    /// The name of the variable, if the segment has one that a key can use. A format is not one, because it does not
    /// identify the resource.
    fn name(&self) -> Option<&str> {
        match self {
            Self::Literal(_) => None,
            Self::Variable(name) | Self::Rest(name) | Self::Affixed(AffixedVariable { name, .. }) => {
                Some(name)
            }
        }
    }
}

pub(crate) fn is_variable_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Checks a literal. It is written like the decoded segment that it matches, so it needs no escape and has one
/// spelling.
fn check_literal(segment: &str) -> Result<(), &'static str> {
    if segment == "." || segment == ".." {
        return Err("a dot segment is never part of a canonical path");
    }
    check_characters(segment)
}

fn check_characters(segment: &str) -> Result<(), &'static str> {
    match segment.bytes().find(|byte| !is_unreserved(*byte) && !b"!$&'()*+,=:@".contains(byte)) {
        None => Ok(()),
        Some(b'{' | b'}') => Err("a variable stands in braces: `/{name}/`"),
        Some(b'%') => Err("a template has no percent-escapes"),
        Some(b'?' | b'#') => Err("a template has no query and no fragment"),
        Some(b';') => Err("a path with `;` is ambiguous and never fenced"),
        Some(_) => Err("not a character of a path"),
    }
}

impl<'a> PathParams<'a> {
    /// The values of `template` in `path`. The template must match the path; otherwise the values are wrong.
    pub(crate) fn new(template: &'a PathTemplate, path: &'a CanonicalPath) -> Self {
        Self { template, path }
    }

    /// All variables with their decoded values.
    pub fn variables(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.template.variable_names().filter_map(|name| Some((name, self.get(name)?)))
    }

    /// The decoded value of a variable. An ambiguous path binds no variable, because no key may be made from it.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        if self.path.ambiguity().is_some() {
            return None;
        }
        let mut tail = self.path.decoded_without_slash()?;
        for piece in &self.template.pieces {
            let (segment, after) = tail.split_once('/').unwrap_or((tail, ""));
            match piece {
                PathTemplateSegment::Rest(rest) if **rest == *name => return Some(tail),
                PathTemplateSegment::Variable(variable) if **variable == *name => return Some(segment),
                PathTemplateSegment::Affixed(affixed) if *affixed.name == *name => {
                    return affixed.value(segment);
                }
                _ => tail = after,
            }
        }
        None
    }
}

impl fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            PathTemplateSegment::Literal(literal) => write!(f, "/{literal}"),
            PathTemplateSegment::Variable(name) => write!(f, "/{{{name}}}"),
            PathTemplateSegment::Affixed(affixed) => write!(f, "/{affixed}"),
            PathTemplateSegment::Rest(name) => write!(f, "/{{{name}...}}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> PathTemplate {
        PathTemplate::parse(text).expect(text)
    }

    /// A template is displayed as it was read.
    #[test]
    fn template_round_trips() {
        for text in [
            "/",
            "/v1/",
            "/v1/orders/{order_id}/capture",
            "/{rest...}",
            "/a@b/{_x1}/{rest...}",
            "/v1/orders/{id}:cancel",
            "/orders/{id}.json",
            "/odata/Orders({id})/lines",
            "/orders/{id}{.format?}",
        ] {
            assert_eq!(template(text).to_string(), text);
        }
        assert_eq!(template("/{a}/x/{b...}").variable_names().collect::<Vec<_>>(), ["a", "b"]);
    }

    /// The error of an invalid template has its place.
    #[test]
    fn template_error_has_place() {
        for (text, at, width) in [
            ("", 0, 0),
            ("v1/x", 0, 4),
            ("/v1//x", 3, 2),
            ("/v1/{a}{b}", 4, 6),
            ("/v1/{a}-{b}", 4, 7),
            ("/v1/{id}{.format}", 4, 13),
            ("/v1/{id}{.?}", 4, 8),
            ("/v1/{.format?}", 4, 10),
            ("/v1/x{rest...}", 4, 10),
            ("/v1/{id};x", 4, 6),
            ("/v1/{id}}", 4, 5),
            ("/{a}:x/{a}", 7, 3),
            ("/v1/{id", 4, 3),
            ("/v1/{}", 4, 2),
            ("/v1/{1a}", 4, 4),
            ("/{a}/{a}", 5, 3),
            ("/{rest...}/x", 11, 1),
            ("/{rest...}/", 11, 0),
            ("/v1/..", 4, 2),
            ("/v1/a%20b", 4, 5),
            ("/v1/a?b", 4, 3),
            ("/v1/a;b", 4, 3),
            ("/v1/a b", 4, 3),
            ("/v1/é", 4, 2),
        ] {
            let bad = PathTemplate::parse(text).expect_err(text);
            assert_eq!((bad.at, bad.width), (at, width), "{text}: {bad}");
        }
    }

    #[test]
    fn template_depth_is_limited() {
        assert!(PathTemplate::parse(&"/a".repeat(64)).is_ok());
        assert!(PathTemplate::parse(&"/a".repeat(65)).is_err());
    }

    #[test]
    fn variables_bind_decoded_whole_segments() {
        for (text, path, bound) in [
            ("/v1/{id}", "/v1/4%2B2", vec![("id", "4+2")]),
            ("/{a}/x/{b}", "/1/x/%C3%A9", vec![("a", "1"), ("b", "é")]),
            ("/v1/{rest...}", "/v1/", vec![("rest", "")]),
            ("/v1/{rest...}", "/v1/a/b/", vec![("rest", "a/b/")]),
            ("/{a}/{rest...}", "/1/2/3", vec![("a", "1"), ("rest", "2/3")]),
            ("/v1/{id}:cancel", "/v1/4%2B2%3Acancel", vec![("id", "4+2")]),
            ("/v1/{id}:cancel", "/v1/a:b:cancel", vec![("id", "a:b")]),
            ("/v1/{id}.json", "/v1/42%2Ejson", vec![("id", "42")]),
            ("/odata/Orders({id})/lines", "/odata/Orders(7)/lines", vec![("id", "7")]),
            ("/v1/{id}{.format?}", "/v1/42", vec![("id", "42")]),
            ("/v1/{id}{.format?}", "/v1/42.json", vec![("id", "42")]),
            ("/v1/v{id}{.format?}/x", "/v1/v42.xml/x", vec![("id", "42")]),
            ("/", "/", vec![]),
            ("/v1%40".replace("%40", "@").as_str(), "/v1%40", vec![]),
        ] {
            let template = template(text);
            let path = CanonicalPath::parse(path);
            assert!(template.matches(&path), "{text} {path:?}");
            for (name, value) in bound {
                assert_eq!(PathParams::new(&template, &path).get(name), Some(value), "{text} {name}");
            }
            assert_eq!(PathParams::new(&template, &path).get("other"), None);
        }
    }

    #[test]
    fn template_matches_whole_path_only() {
        for (text, path) in [
            ("/v1/{id}", "/v1/"),
            ("/v1/{id}", "/v1"),
            ("/v1/{id}", "/v1/1/"),
            ("/v1/{id}", "/v1/1/2"),
            ("/v1/{rest...}", "/v1"),
            ("/v1", "/V1"),
            ("/", "/x"),
            ("/{rest...}", "*"),
            ("/v1/{id}:cancel", "/v1/:cancel"),
            ("/v1/{id}:cancel", "/v1/42:Cancel"),
            ("/v1/{id}:cancel", "/v1/42"),
            ("/v1/aa{id}aa", "/v1/aaa"),
            ("/v1/{id}{.format?}", "/v1/42."),
            ("/v1/{id}{.format?}", "/v1/.json"),
            ("/v1/{id}{.format?}", "/v1/4.2.json"),
        ] {
            assert!(!template(text).matches(&CanonicalPath::parse(path)), "{text} {path}");
        }
    }

    /// An ambiguous path is matched without decoding, and binds no variable.
    #[test]
    fn ambiguous_path_matches_without_binding() {
        let template = template("/v1/{rest...}");
        let path = CanonicalPath::parse("/v1/a//b");
        assert!(template.matches(&path));
        assert_eq!(PathParams::new(&template, &path).get("rest"), None);
    }

    /// The second readings are in lower case, with and without a trailing slash, and without each suffix that the
    /// template writes out.
    #[test]
    fn second_readings_have_other_ends() {
        for (text, readings) in [
            ("/", &["/"][..]),
            ("/V1/{Rest...}", &["/v1/{Rest...}"]),
            ("/Admin/", &["/admin/", "/admin"]),
            ("/a/{Id}", &["/a/{Id}", "/a/{Id}/"]),
            ("/A.b.C", &["/a.b.c", "/a.b.c/", "/a", "/a.b"]),
            ("/.well", &["/.well", "/.well/"]),
            ("/{id}.JSON", &["/{id}.json", "/{id}.json/", "/{id}"]),
            ("/X{id}:y.z", &["/x{id}:y.z", "/x{id}:y.z/", "/x{id}:y"]),
        ] {
            let found: Vec<String> =
                template(text).alternate_readings().iter().map(ToString::to_string).collect();
            assert_eq!(found, readings, "{text}");
        }
    }

    /// A template writes out the segments of another one if it has a text wherever the other one has a text.
    #[test]
    fn written_segments_are_those_of_other() {
        for (one, other, writes) in [
            ("/admin/public", "/admin/{id}", true),
            ("/Admin/{id}", "/admin/{id}", true),
            ("/{id}.json", "/{id}", true),
            ("/health", "/{rest...}", true),
            ("/admin", "/admin/{rest...}", true),
            ("/admin", "/admin/", true),
            ("/{id}:Cancel", "/{id}:cancel", true),
            ("/{rest...}", "/admin", false),
            ("/{rest...}", "/{id}", false),
            ("/{a}/x", "/b/{id}", false),
            ("/{id}", "/{id}:cancel", false),
            ("/a", "/a/{id}", false),
        ] {
            assert_eq!(template(one).writes_segments_of(&template(other)), writes, "{one} {other}");
        }
    }

    /// A template covers another one only if it matches all paths of that one.
    #[test]
    fn wider_template_covers_narrower() {
        for (wide, narrow) in [
            ("/{rest...}", "/"),
            ("/{rest...}", "/v1/{id}"),
            ("/{a}", "/{b}"),
            ("/{a}", "/v1"),
            ("/v1/{a...}", "/v1/{b...}"),
            ("/v1/{a...}", "/v1/"),
            ("/{a}", "/{b}:x"),
            ("/{a}:x", "/{b}:y:x"),
            ("/{a}:x", "/b:x"),
            ("/{a}{.f?}", "/{b}{.g?}"),
            ("/v{a}", "/v1{b}{.f?}"),
        ] {
            assert!(template(wide).covers(&template(narrow)), "{wide} {narrow}");
        }
        for (one, other) in [
            ("/v1", "/{a}"),
            ("/{a}", "/"),
            ("/{a}", "/{b...}"),
            ("/v1/{a...}", "/v1"),
            ("/{a}/x", "/{a}/{b}"),
            ("/a/b", "/a"),
            ("/a", "/a/"),
            ("/{a}:x", "/{b}"),
            ("/{a}:x", "/:x"),
            ("/{a}{.f?}", "/{b}.json"),
            ("/{a}:x", "/{b}:y"),
        ] {
            assert!(!template(one).covers(&template(other)), "{one} {other}");
        }
    }
}
