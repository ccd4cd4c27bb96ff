//! The parts that are the same in all imported policies, and the form of a route.

/// The name of the upstream of all routes.
pub(super) const UPSTREAM: &str = "service";

/// The beginning of each imported policy, up to the upstream.
pub(super) const LISTENER_AND_ZOOKEEPER: &str = "\
version: 1

listeners:
  public: {address: 127.0.0.1:8080}

zookeeper:
  servers: [127.0.0.1:2181]
";

/// The fields of the upstream that a document does not describe.
pub(super) const ENDPOINTS: &str = r#"    endpoints: ["http://127.0.0.1:8000"]"#;
pub(super) const FENCING: &str = "    fencing: none";
pub(super) const RESPONSE_TIMEOUT: &str =
    "    response_timeout: 8s           # a request is given up before its lock can be lost";

/// The key that a route is proposed to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProposedKey {
    /// The key template as a policy writes it.
    pub(super) template: String,
    /// True if one request may have several keys of this template.
    pub(super) is_set: bool,
}

impl ProposedKey {
    /// The value of the field `fence`.
    pub(super) fn fence_yaml(&self) -> String {
        let Self { template, is_set } = self;
        match is_set {
            true => format!("{{keys: [{}]}}", quote(template)),
            false => format!("{{key: {}}}", quote(template)),
        }
    }
}

/// The lines of a route without indentation; the first line has the name. `fence`: the value of the field `fence`.
pub(super) fn route_lines(name: &str, methods: &[&str], path: &str, fence: &str) -> [String; 4] {
    [
        format!("- name: {name}"),
        format!("  upstream: {UPSTREAM}"),
        format!("  match: {{methods: [{}], path: {}}}", methods.join(", "), quote(path)),
        format!("  fence: {fence}"),
    ]
}

/// The text in double quotes, with `$` doubled before a brace so that it is not read as an environment variable.
pub(super) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace("${", "$${")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quoted text of the document stays one value of the policy.
    #[test]
    fn quoted_text_is_one_value() {
        assert_eq!(quote(r#"a"b\c${HOME}"#), r#""a\"b\\c$${HOME}""#);
        let key = ProposedKey { template: "a/{body:/x}".into(), is_set: true };
        assert_eq!(key.fence_yaml(), r#"{keys: ["a/{body:/x}"]}"#);
    }
}
