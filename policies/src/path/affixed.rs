//! A variable with literal text around it in one segment: `{id}:cancel`, `{id}.json`, `Orders({id})`, `{id}{.format?}`.

use std::fmt;

/// A variable and the text around it in its segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AffixedVariable {
    pub(super) name: Box<str>,
    /// The text before the variable.
    pub(super) before: Box<str>,
    /// The text behind the variable.
    pub(super) after: AffixedEnd,
}

/// What stands behind a variable in its segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AffixedEnd {
    Literal(Box<str>),
    /// `{.format?}`: nothing, or a dot and a word. The variable then has no dot in it.
    Format(Box<str>),
}

impl AffixedVariable {
    /// True if the text behind the variable has a dot, so that a suffix is written out.
    pub(crate) fn writes_suffix(&self) -> bool {
        matches!(&self.after, AffixedEnd::Literal(after) if after.contains('.'))
    }

    /// The value of the variable; `None` where the segment is not of this form.
    pub(crate) fn value<'s>(&self, segment: &'s str) -> Option<&'s str> {
        let rest = segment.strip_prefix(&*self.before)?;
        let value = match &self.after {
            AffixedEnd::Literal(after) => rest.strip_suffix(&**after)?,
            AffixedEnd::Format(_) => match rest.split_once('.') {
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
            (AffixedEnd::Literal(ours), theirs) => {
                let theirs = match theirs {
                    AffixedEnd::Literal(theirs) => theirs,
                    AffixedEnd::Format(_) => "",
                };
                other.before.starts_with(&*self.before) && theirs.ends_with(&**ours)
            }
            (AffixedEnd::Format(_), AffixedEnd::Format(_)) => self.before == other.before,
            (AffixedEnd::Format(_), AffixedEnd::Literal(_)) => false,
        }
    }

    /// False only if no segment is of both forms.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let ends = |one: &Self| match &one.after {
            AffixedEnd::Literal(after) => after.clone(),
            AffixedEnd::Format(_) => "".into(),
        };
        let mine = ends(self);
        let theirs = ends(other);
        (self.before.starts_with(&*other.before) || other.before.starts_with(&*self.before))
            && (mine.ends_with(&*theirs) || theirs.ends_with(&*mine))
    }

    /// True if both have the same segments, whatever their variables are called.
    pub(crate) fn is_same_form(&self, other: &Self) -> bool {
        self.covers(other) && other.covers(self)
    }

    /// The text around the variable, with a sign in its place that no path template has.
    pub(crate) fn form(&self) -> String {
        match &self.after {
            AffixedEnd::Literal(after) => format!("{}<>{after}", self.before),
            AffixedEnd::Format(_) => format!("{}<>.<>?", self.before),
        }
    }

    /// The text behind the variable, where that is written out; `.json` for a format.
    pub(crate) fn suffix(&self) -> &str {
        match &self.after {
            AffixedEnd::Literal(after) => after,
            AffixedEnd::Format(_) => ".json",
        }
    }
}

impl fmt::Display for AffixedVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{{{}}}", self.before, self.name)?;
        match &self.after {
            AffixedEnd::Literal(after) => f.write_str(after),
            AffixedEnd::Format(name) => write!(f, "{{.{name}?}}"),
        }
    }
}
