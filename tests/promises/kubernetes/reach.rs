//! Which pods reach which ports under a set of NetworkPolicies, evaluated as a network plug-in does.

use serde_json::Value;

pub(super) struct NetworkPolicies(Vec<Value>);

impl NetworkPolicies {
    pub(super) fn of(resources: &[Value]) -> Self {
        Self(resources.iter().filter(|one| one["kind"] == "NetworkPolicy").cloned().collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the target pod `to` in the namespace `at` admits the pod `pod` of `namespace` at this port. Labels are
    /// written `a=b,c=d`.
    pub(super) fn admits(&self, namespace: &str, pod: &str, at: &str, to: &str, port: &str) -> bool {
        let of_target = |one: &&Value| {
            let own = one["metadata"]["namespace"].as_str().unwrap_or("default");
            own == at && selects(&one["spec"]["podSelector"], to)
        };
        let mut policies = self.0.iter().filter(of_target).peekable();
        // A pod that no policy selects admits everything.
        policies.peek().is_none()
            || policies.any(|one| {
                let place = PodIdentity { namespace, pod, own: at };
                each(&one["spec"]["ingress"]).any(|rule| allows(rule, &place, port))
            })
    }
}

struct PodIdentity<'a> {
    namespace: &'a str,
    pod: &'a str,
    /// The namespace of the policy, which a rule means when it names none.
    own: &'a str,
}

fn allows(rule: &Value, place: &PodIdentity<'_>, port: &str) -> bool {
    let at_port =
        |one: &Value| one["port"].as_str().map_or_else(|| one["port"].to_string(), str::to_owned) == port;
    let may_come = |from: &Value| {
        let by_namespace = match from["namespaceSelector"].is_object() {
            true => selects(
                &from["namespaceSelector"],
                &format!("kubernetes.io/metadata.name={}", place.namespace),
            ),
            false => place.namespace == place.own,
        };
        by_namespace && (!from["podSelector"].is_object() || selects(&from["podSelector"], place.pod))
    };
    (rule["ports"].is_null() || each(&rule["ports"]).any(at_port))
        && (rule["from"].is_null() || each(&rule["from"]).any(may_come))
}

fn selects(selector: &Value, labels: &str) -> bool {
    let known = selector.as_object().expect("a selector").keys().all(|key| key == "matchLabels");
    assert!(known, "more than labels: {selector}");
    let wanted = selector["matchLabels"].as_object().into_iter().flatten();
    wanted.into_iter().all(|(name, value)| {
        let label = format!("{name}={}", value.as_str().expect("a label"));
        labels.split(',').any(|own| own == label)
    })
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
