//! Turns a path of a document into a path template of a policy.

use fencegate_policies::path::PathTemplate;

/// A path with its variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenApiPathTemplate {
    /// The path template as a policy writes it.
    pub(super) template: String,
    /// The variables, from left to right.
    pub(super) variables: Vec<PathVariable>,
}

/// A variable of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathVariable {
    /// The name of the parameter in the document.
    pub(super) parameter: String,
    /// The name of the variable in the template.
    pub(super) name: String,
    /// The collection that contains the resource: the last fixed segment before the variable, such as `orders`.
    pub(super) collection: String,
}

impl OpenApiPathTemplate {
    /// Makes the path template of `path`. `prefix`: the path of the server, which stands before `path`.
    ///
    /// # Errors
    /// Returns a reason if the path cannot be written as a path template.
    pub(super) fn parse(prefix: &str, path: &str) -> Result<Self, String> {
        let whole = format!("{prefix}{path}");
        let mut variables: Vec<PathVariable> = Vec::new();
        let mut collection = None;
        let mut template = String::new();
        for segment in whole.strip_prefix('/').ok_or("the path does not begin with `/`")?.split('/') {
            template.push('/');
            let Some((before, rest)) = segment.split_once('{') else {
                template.push_str(segment);
                if !segment.is_empty() && !is_version_segment(segment) {
                    collection = Some(segment);
                }
                continue;
            };
            let (parameter, after) = rest.split_once('}').ok_or("a `{` of the path has no `}`")?;
            if after.contains('{') {
                return Err("a segment of the path has several parameters".into());
            }
            let name = variable_name(parameter);
            template.push_str(&format!("{before}{{{name}}}{after}"));
            let collection = collection.map_or_else(|| name.clone(), str::to_owned);
            variables.push(PathVariable { parameter: parameter.to_owned(), name, collection });
        }
        PathTemplate::parse(&template).map_err(|bad| format!("the path is none of a policy: {bad}"))?;
        Ok(Self { template, variables })
    }
}

/// Whether a fixed segment is a version, such as `v2`, which names no collection.
fn is_version_segment(segment: &str) -> bool {
    let digits = segment.strip_prefix(['v', 'V']).unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// The name of a parameter, with `_` in the place of characters that a variable cannot have.
fn variable_name(parameter: &str) -> String {
    let fit = |char: char| if char.is_ascii_alphanumeric() { char } else { '_' };
    let name: String = parameter.chars().map(fit).collect();
    match name.starts_with(|first: char| first.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}

/// A sort key that puts the more exact routes first, because the first route that matches takes the request: a fixed
/// segment comes before a variable with text around it, and that one before a variable alone.
pub(super) fn specificity(template: &str) -> Vec<(u8, &str)> {
    let rank =
        |segment: &str| match (segment.contains('{'), segment.starts_with('{') && segment.ends_with('}')) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        };
    template.split('/').map(|segment| (rank(segment), segment)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A parameter becomes a variable of the same name, as far as the characters allow, and knows its collection.
    #[test]
    fn paths_become_templates() {
        for (prefix, path, template, collections) in [
            ("", "/v1/orders/{order-id}", "/v1/orders/{order_id}", &["orders"][..]),
            ("/api/v2", "/{id}", "/api/v2/{id}", &["api"]),
            ("", "/v2/{id}", "/v2/{id}", &["id"]),
            ("", "/orders/{id}:cancel", "/orders/{id}:cancel", &["orders"]),
            ("", "/a/{x}/b/{y}/c", "/a/{x}/b/{y}/c", &["a", "b"]),
            ("", "/a/{1}", "/a/{_1}", &["a"]),
            ("", "/a/", "/a/", &[]),
        ] {
            let parsed = OpenApiPathTemplate::parse(prefix, path).expect(path);
            assert_eq!(parsed.template, template);
            let found: Vec<_> = parsed.variables.iter().map(|variable| &*variable.collection).collect();
            assert_eq!(found, collections, "{path}");
        }
        for path in ["/a/{x}{y}", "/a/{x", "a", "/a//b", "/a?b=c", "/a/{x-1}/{x_1}", "/a/%20"] {
            assert!(OpenApiPathTemplate::parse("", path).is_err(), "{path}");
        }
    }

    /// A more exact route stands before a route that would take its requests.
    #[test]
    fn exact_paths_come_first() {
        let mut paths = ["/a/{x}", "/a/{x}:b", "/a/z", "/{y}/z", "/a"];
        paths.sort_by(|one, other| specificity(one).cmp(&specificity(other)));
        assert_eq!(paths, ["/a", "/a/z", "/a/{x}:b", "/a/{x}", "/{y}/z"]);
    }
}
