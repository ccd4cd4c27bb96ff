//! The parts of a policy that all imported ones have, and how a route is written in it.

/// The upstream of all routes.
pub(super) const UPSTREAM: &str = "service";

/// What stands above the upstream.
pub(super) const LISTENER_AND_ZOOKEEPER: &str = "\
version: 1

listeners:
  public: {address: 127.0.0.1:8080}

zookeeper:
  servers: [127.0.0.1:2181]
";

/// The fields of the upstream that are not in the document.
pub(super) const ENDPOINTS: &str = r#"    endpoints: ["http://127.0.0.1:8000"]"#;
pub(super) const FENCING: &str = "    fencing: none";
pub(super) const RESPONSE_TIMEOUT: &str =
    "    response_timeout: 8s           # a request is given up before its lock can be lost";

/// The fence of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProposedKey {
    /// As a policy has it.
    pub(super) template: String,
    /// A request may have several such keys.
    pub(super) is_set: bool,
}

impl ProposedKey {
    /// The value of `fence`.
    pub(super) fn fence(&self) -> String {
        let Self { template, is_set } = self;
        match is_set {
            true => format!("{{keys: [{}]}}", quote(template)),
            false => format!("{{key: {}}}", quote(template)),
        }
    }
}

/// The lines of a route without their indentation, the first of them with its name. `fence` is the value of that field.
pub(super) fn route_lines(name: &str, methods: &[&str], path: &str, fence: &str) -> [String; 4] {
    [
        format!("- name: {name}"),
        format!("  upstream: {UPSTREAM}"),
        format!("  match: {{methods: [{}], path: {}}}", methods.join(", "), quote(path)),
        format!("  fence: {fence}"),
    ]
}

/// A text in double quotes, of which no part is taken for a variable of the environment.
pub(super) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace("${", "$${")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text of the document stays one text in the policy.
    #[test]
    fn quoted_text_is_one_value() {
        assert_eq!(quote(r#"a"b\c${HOME}"#), r#""a\"b\\c$${HOME}""#);
        let key = ProposedKey { template: "a/{body:/x}".into(), is_set: true };
        assert_eq!(key.fence(), r#"{keys: ["a/{body:/x}"]}"#);
    }
}
