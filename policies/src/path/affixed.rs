//! A variable with literal text around it in one segment: `{id}:cancel`, `{id}.json`, `Orders({id})`, `{id}{.format?}`.

use std::fmt;

/// A variable and the text around it in one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AffixedVariable {
    pub(super) name: Box<str>,
    /// The text before the variable.
    pub(super) before: Box<str>,
    /// The text after the variable.
    pub(super) after: VariableSuffix,
}

/// The text after a variable in its segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VariableSuffix {
    Literal(Box<str>),
    /// `{.format?}`: nothing, or a dot and a word. The value of the variable then contains no dot.
    Format(Box<str>),
}

impl AffixedVariable {
    /// Whether the text after the variable contains a dot, so that the template writes a suffix out.
    pub(crate) fn writes_suffix(&self) -> bool {
        matches!(&self.after, VariableSuffix::Literal(after) if after.contains('.'))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The forms that remain if the text after the variable is cut at one of its dots: `{id}` for `{id}.json`. There
    /// may be no text left.
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

    /// Whether there is no text around the variable.
    pub(super) fn is_bare(&self) -> bool {
        self.before.is_empty() && matches!(&self.after, VariableSuffix::Literal(after) if after.is_empty())
    }

    /// The same form with its text in lower case.
    pub(super) fn to_lowercase(&self) -> Self {
        let after = match &self.after {
            VariableSuffix::Literal(after) => VariableSuffix::Literal(after.to_ascii_lowercase().into()),
            format @ VariableSuffix::Format(_) => format.clone(),
        };
        Self { name: self.name.clone(), before: self.before.to_ascii_lowercase().into(), after }
    }

    /// The value of the variable; `None` if the segment does not have this form.
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

    /// Whether every segment of the form `other` also has this form.
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

    /// Whether some segment may have both forms. False only if none can.
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

    /// Whether both forms have the same segments, whatever the names of their variables are.
    pub(crate) fn has_same_segments(&self, other: &Self) -> bool {
        self.covers(other) && other.covers(self)
    }

    /// The text around the variable, with `<>` in its place, which no path template can contain.
    pub(crate) fn segment_pattern(&self) -> String {
        match &self.after {
            VariableSuffix::Literal(after) => format!("{}<>{after}", self.before),
            VariableSuffix::Format(_) => format!("{}<>.<>?", self.before),
        }
    }

    /// The text around the variable. A bare variable at the same place takes all of it into its value.
    pub(crate) fn text(&self) -> TextAroundVariable {
        TextAroundVariable { before: self.before.clone(), after: self.after.clone() }
    }

    /// The part of the text around the variable of `other` that this variable takes into its value, in segments of both
    /// forms. `None` if both variables have the same value there, or if there are no such segments.
    pub(crate) fn text_taken_of(&self, other: &Self) -> Option<TextAroundVariable> {
        if !self.has_common_segment(other) {
            return None;
        }
        let before = other.before.strip_prefix(&*self.before).unwrap_or_default();
        let after = match (&self.after, &other.after) {
            (VariableSuffix::Literal(ours), VariableSuffix::Literal(theirs)) => theirs.strip_suffix(&**ours),
            // A segment with two dots does not have our form, and the variable ends before the first dot.
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

/// The text around a variable, or a part of that text.
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

    /// A variable takes the part of the other form's text that its own form does not write out.
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
