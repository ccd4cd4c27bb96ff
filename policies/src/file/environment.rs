//! Replaces `${NAME}` and `${NAME:-default}` with values of the environment.
//!
//! Variables are replaced in single values after the YAML has been parsed. So the value of a variable cannot add a
//! field, a route or a line to the file.

use std::{borrow::Cow, cell::Cell};

use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    path::is_variable_name,
};

/// Looks up a variable of the environment.
pub type Environment<'e> = dyn Fn(&str) -> Option<String> + 'e;

/// Replaces variables in the values of one file.
pub(super) struct EnvExpander<'e> {
    environment: &'e Environment<'e>,
    /// The number of bytes that may still be inserted, so that a short file with many references does not become a
    /// large one.
    left: Cell<usize>,
}

/// The most bytes that variables insert into one file.
const MOST: usize = 1 << 20;

impl<'e> EnvExpander<'e> {
    pub(super) fn new(environment: &'e Environment<'e>) -> Self {
        Self { environment, left: Cell::new(MOST) }
    }

    /// The text with its variables replaced. `$${` is the escape for `${`.
    pub(super) fn expand<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, Diagnostic> {
        if !text.contains("${") {
            return Ok(Cow::Borrowed(text));
        }
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(escaped) = before.strip_suffix('$') {
                filled.push_str(escaped);
                filled.push_str("${");
                rest = after;
                continue;
            }
            let (reference, after) =
                after.split_once('}').ok_or_else(|| malformed_env_reference_error(after))?;
            filled.push_str(before);
            filled.push_str(&self.resolve_env_reference(reference)?);
            rest = after;
        }
        filled.push_str(rest);
        Ok(Cow::Owned(filled))
    }

    fn resolve_env_reference(&self, reference: &str) -> Result<String, Diagnostic> {
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        if !is_variable_name(name) {
            return Err(malformed_env_reference_error(&format!("{reference}}}")));
        }
        // As in a shell, a variable that is set to the empty text counts as not set.
        let set = (self.environment)(name).filter(|value| !value.is_empty());
        let value = set.or(default.map(str::to_owned)).ok_or_else(|| unset_env_variable_error(name))?;
        let left = self.left.get().checked_sub(value.len());
        self.left.set(left.ok_or_else(|| {
            Diagnostic::new(
                DiagnosticCode::TooMuch,
                "variables of the environment put more than 1 MiB into the file",
            )
        })?);
        Ok(value)
    }
}

/// The prefixes of sources in a key template. If a `$` precedes one of them, the error says that the `$` is superfluous.
const SOURCES: [&str; 5] = ["path.", "query.", "header.", "host", "body:"];

fn malformed_env_reference_error(rest: &str) -> Diagnostic {
    let message = format!("`${{{rest}` names no variable of the environment");
    let inside = rest.split('}').next().unwrap_or_default();
    if SOURCES.iter().any(|source| inside.trim_start().starts_with(source)) {
        let remedy = format!("a value of the request has no `$` before it: `{{{inside}}}`");
        return Diagnostic::new(DiagnosticCode::BadVariable, message).with_remedy(remedy);
    }
    let remedy = "write `${NAME}` or `${NAME:-default}`; to write a `${` itself, write `$${`";
    Diagnostic::new(DiagnosticCode::BadVariable, message).with_remedy(remedy)
}

fn unset_env_variable_error(name: &str) -> Diagnostic {
    let message = format!("the environment has no `{name}`, and no default is written");
    let remedy = format!("set it where the process is started, or write `${{{name}:-default}}`");
    Diagnostic::new(DiagnosticCode::UnsetVariable, message).with_remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "ZONE" => Some("eu".into()),
            "PORT_1" => Some("8080".into()),
            "EMPTY" => Some(String::new()),
            "SLY" => Some("${ZONE}, evil: true\n- x".into()),
            "LARGE" => Some("x".repeat(MOST / 2 + 1)),
            _ => None,
        }
    }

    fn expand_with_variables(text: &str) -> Result<String, DiagnosticCode> {
        let filled = EnvExpander::new(&environment).expand(text).map(Cow::into_owned);
        filled.map_err(|diagnostic| diagnostic.code)
    }

    /// A variable is replaced by its value or its default, which is not expanded again.
    #[test]
    fn variable_expands_to_value_or_default() {
        for (text, value) in [
            ("plain {path.x} $5", "plain {path.x} $5"),
            ("${ZONE}", "eu"),
            ("a-${ZONE}-${PORT_1}", "a-eu-8080"),
            ("${NONE:-}", ""),
            ("${NONE:-a:-b}", "a:-b"),
            ("${EMPTY:-full}", "full"),
            ("$${ZONE}", "${ZONE}"),
            ("$${ZONE} ${ZONE}", "${ZONE} eu"),
            // An inserted value is not expanded again.
            ("${SLY}", "${ZONE}, evil: true\n- x"),
        ] {
            assert_eq!(expand_with_variables(text).as_deref(), Ok(value), "{text}");
        }
    }

    #[test]
    fn unset_or_malformed_variable_is_rejected() {
        assert_eq!(expand_with_variables("${NONE}"), Err(DiagnosticCode::UnsetVariable));
        assert_eq!(expand_with_variables("${EMPTY}"), Err(DiagnosticCode::UnsetVariable));
        for text in ["${", "${ZONE", "${}", "${path.x}", "${1}", "${ZONE-x}", "${A B}", "${:-x}"] {
            assert_eq!(expand_with_variables(text), Err(DiagnosticCode::BadVariable), "{text}");
        }
    }

    /// Variables do not make a small file a large one.
    #[test]
    fn expansion_has_size_limit() {
        assert_eq!(expand_with_variables("${LARGE}").map(|text| text.len()), Ok(MOST / 2 + 1));
        assert_eq!(expand_with_variables("${LARGE}${LARGE}"), Err(DiagnosticCode::TooMuch));
    }
}
