//! A variable with literal text around it in one segment: `{id}:cancel`, `{id}.json`, `Orders({id})`, `{id}{.format?}`.

use std::fmt;

/// A variable and the text around it in its segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AffixedVariable {
    pub(super) name: Box<str>,
    /// The text before the variable.
    pub(super) before: Box<str>,
    /// The text behind the variable.
    pub(super) after: VariableSuffix,
}

/// What stands behind a variable in its segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VariableSuffix {
    Literal(Box<str>),
    /// `{.format?}`: nothing, or a dot and a word. The variable then has no dot in it.
    Format(Box<str>),
}

impl AffixedVariable {
    /// True if the text behind the variable has a dot, so that a suffix is written out.
    pub(crate) fn writes_suffix(&self) -> bool {
        matches!(&self.after, VariableSuffix::Literal(after) if after.contains('.'))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The same without what follows each dot of the text behind the variable: `{id}` of `{id}.json`, which may have no text left.
    pub(super) fn without_suffixes(&self) -> impl Iterator<Item = Self> {
        let after = match &self.after {
            VariableSuffix::Literal(after) => &**after,
            VariableSuffix::Format(_) => "",
        };
        after.match_indices('.').map(|(dot, _)| {
            let after = VariableSuffix::Literal(after[..dot].into());
            Self { name: self.name.clone(), before: self.before.clone(), after }
        })
    }

    /// True if there is no text around the variable.
    pub(super) fn is_bare(&self) -> bool {
        self.before.is_empty() && matches!(&self.after, VariableSuffix::Literal(after) if after.is_empty())
    }

    /// The same with its text in lower case.
    pub(super) fn to_lowercase(&self) -> Self {
        let after = match &self.after {
            VariableSuffix::Literal(after) => VariableSuffix::Literal(after.to_ascii_lowercase().into()),
            format @ VariableSuffix::Format(_) => format.clone(),
        };
        Self { name: self.name.clone(), before: self.before.to_ascii_lowercase().into(), after }
    }

    /// The value of the variable; `None` where the segment is not of this form.
    pub(crate) fn value<'s>(&self, segment: &'s str) -> Option<&'s str> {
        let rest = segment.strip_prefix(&*self.before)?;
        let value = match &self.after {
            VariableSuffix::Literal(after) => rest.strip_suffix(&**after)?,
            VariableSuffix::Format(_) => match rest.split_once('.') {
                Some((_, format)) if format.is_empty() || format.contains('.') => return None,
                Some((value, _)) => value,
                None => rest,
            },
        };
        (!value.is_empty()).then_some(value)
    }

    /// True if every segment of `other` is one of this, too.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (&self.after, &other.after) {
            (VariableSuffix::Literal(ours), theirs) => {
                let theirs = match theirs {
                    VariableSuffix::Literal(theirs) => theirs,
                    VariableSuffix::Format(_) => "",
                };
                other.before.starts_with(&*self.before) && theirs.ends_with(&**ours)
            }
            (VariableSuffix::Format(_), VariableSuffix::Format(_)) => self.before == other.before,
            (VariableSuffix::Format(_), VariableSuffix::Literal(_)) => false,
        }
    }

    /// False only if no segment is of both forms.
    pub(crate) fn has_common_segment(&self, other: &Self) -> bool {
        let ends = |one: &Self| match &one.after {
            VariableSuffix::Literal(after) => after.clone(),
            VariableSuffix::Format(_) => "".into(),
        };
        let mine = ends(self);
        let theirs = ends(other);
        (self.before.starts_with(&*other.before) || other.before.starts_with(&*self.before))
            && (mine.ends_with(&*theirs) || theirs.ends_with(&*mine))
    }

    /// True if both have the same segments, whatever their variables are called.
    pub(crate) fn has_same_segments(&self, other: &Self) -> bool {
        self.covers(other) && other.covers(self)
    }

    /// The text around the variable, with a sign in its place that no path template has.
    pub(crate) fn segment_pattern(&self) -> String {
        match &self.after {
            VariableSuffix::Literal(after) => format!("{}<>{after}", self.before),
            VariableSuffix::Format(_) => format!("{}<>.<>?", self.before),
        }
    }

    /// The text around the variable, all of which a variable without text around it takes as well.
    pub(crate) fn text(&self) -> TextAroundVariable {
        TextAroundVariable { before: self.before.clone(), after: self.after.clone() }
    }

    /// What this variable takes of the text around the variable of `other`, in segments of both forms. `None` where both
    /// variables then have one value, and where there are no such segments.
    pub(crate) fn text_taken_of(&self, other: &Self) -> Option<TextAroundVariable> {
        if !self.has_common_segment(other) {
            return None;
        }
        let before = other.before.strip_prefix(&*self.before).unwrap_or_default();
        let after = match (&self.after, &other.after) {
            (VariableSuffix::Literal(ours), VariableSuffix::Literal(theirs)) => theirs.strip_suffix(&**ours),
            // A segment with two dots is none of ours, and the variable ends before the first one.
            (VariableSuffix::Format(_), VariableSuffix::Literal(theirs))
                if theirs.matches('.').count() > 1 =>
            {
                return None;
            }
            (VariableSuffix::Format(_), VariableSuffix::Literal(theirs)) => theirs.split('.').next(),
            (_, VariableSuffix::Format(_)) => None,
        };
        let after = after.unwrap_or_default();
        let takes_text = !before.is_empty() || !after.is_empty();
        takes_text.then(|| TextAroundVariable {
            before: before.into(),
            after: VariableSuffix::Literal(after.into()),
        })
    }
}

/// The text around a variable, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextAroundVariable {
    pub(crate) before: Box<str>,
    pub(crate) after: VariableSuffix,
}

impl fmt::Display for AffixedVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{{{}}}", self.before, self.name)?;
        match &self.after {
            VariableSuffix::Literal(after) => f.write_str(after),
            VariableSuffix::Format(name) => write!(f, "{{.{name}?}}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{PathTemplate, PathTemplateSegment};

    fn affixed(segment: &str) -> AffixedVariable {
        let template = PathTemplate::parse(&format!("/{segment}")).expect(segment);
        match template.pieces() {
            [PathTemplateSegment::Affixed(affixed)] => affixed.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// A variable takes the text that its own segment does not write out.
    #[test]
    fn taken_text_is_rest_of_other_affix() {
        for (own, other, taken) in [
            ("{id}{.format?}", "{id}:cancel", Some(("", ":cancel"))),
            ("{id}{.format?}", "{id}:cancel.json", Some(("", ":cancel"))),
            ("{id}{.format?}", "{id}:cancel.tar.gz", None),
            ("{id}{.format?}", "{id}.pdf", None),
            ("{id}{.format?}", "{no}{.type?}", None),
            ("{id}.json", "{id}:cancel.json", Some(("", ":cancel"))),
            ("{id}.json", "{no}.json", None),
            ("{id}.json", "{id}.xml", None),
            ("{id}.json", "{id}{.format?}", None),
            ("{id}:cancel", "{id}.json", None),
            ("o-{id}", "o-{id}.json", Some(("", ".json"))),
            ("o{id}", "orders({id})", Some(("rders(", ")"))),
            ("orders({id})", "o{id}", None),
        ] {
            let found = affixed(own).text_taken_of(&affixed(other));
            let wanted = taken.map(|(before, after)| TextAroundVariable {
                before: before.into(),
                after: VariableSuffix::Literal(after.into()),
            });
            assert_eq!(found, wanted, "{own} {other}");
        }
    }
}
