//! What is shipped for Kubernetes is sound by the word of its own tools, and its parts fit together.

use std::{env, fs};

use fencegate_tests::scratch;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{
    artefacts::{from_pypi, is_good, read, shipped},
    clients::run,
};

async fn text_of(folder: &str) -> String {
    let said = run("kubectl", &["kustomize", &shipped(&format!("kustomize/{folder}"))]).await;
    String::from_utf8(said.stdout).expect("text")
}

/// The resources that a folder stands for.
async fn rendered(folder: &str) -> Vec<Value> {
    let text = text_of(folder).await;
    text.split("\n---\n").map(|one| serde_saphyr::from_str(one).expect("YAML")).collect()
}

/// The one resource of this kind and name.
fn the<'a>(resources: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let named = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
    resources.iter().find(named).unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn container(set: &Value) -> &Value {
    &set["spec"]["template"]["spec"]["containers"][0]
}

#[tokio::test]
async fn every_folder_renders_and_fits_the_schemas_of_its_resources() {
    static MADE: OnceCell<String> = OnceCell::const_new();
    let validate = from_pypi(&MADE, "kubernetes-validate", "kubernetes-validate==1.37.0").await;
    let home = scratch::place();
    for folder in ["base", "init", "guard", "guard-first", "guards", "guards-first"] {
        let text = text_of(folder).await;
        let file = home.path().join(format!("{folder}.yaml"));
        fs::write(&file, &text).expect("our own folder");
        run(&validate, &["--strict", &file.display().to_string()]).await;
        assert!(!text.contains("elector: {}"), "takes everybody's pods: {text}");
    }
    for folder in ["base", "guard", "guards"] {
        is_good(&shipped(&format!("kustomize/{folder}/policy.yaml"))).await;
    }
}

#[tokio::test]
async fn gateways_keep_what_they_know_through_a_roll_out() {
    let base = rendered("base").await;
    let set = the(&base, "StatefulSet", "fencegate");
    assert_eq!(set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"], "state", "{set}");
    let mounts = container(set)["volumeMounts"].as_array().expect("mounts");
    let state = json!({"name": "state", "mountPath": "/var/lib/fencegate"});
    assert!(
        mounts.contains(&state)
            && read("kustomize/base/policy.yaml").contains("state_dir: /var/lib/fencegate")
    );
    the(&base, "PodDisruptionBudget", "fencegate");
    for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
        assert!(container(set)[probe].is_object(), "no {probe}");
    }
    assert_eq!(container(set)["securityContext"]["readOnlyRootFilesystem"], true);
    assert!(container(set)["lifecycle"]["preStop"].is_object());
    // An installation is begun by a person, once: not by every roll-out.
    assert!(!base.iter().any(|one| one["kind"] == "Job"), "the base begins installations");
    assert_eq!(container(the(&rendered("init").await, "Job", "fencegate-era-init"))["args"][1], "init");
}

#[tokio::test]
async fn one_guard_with_a_store_is_the_only_way_to_its_service() {
    let guard = rendered("guard").await;
    let set = the(&guard, "StatefulSet", "fencegate-guard");
    assert_eq!(set["spec"]["replicas"], 1, "two would have a store each");
    assert_eq!(set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"], "store", "{set}");
    let arguments = |set: &Value| container(set)["args"].to_string();
    assert!(!arguments(set).contains("--init"), "a lost volume would begin anew by itself");
    let first = rendered("guard-first").await;
    let first = arguments(the(&first, "StatefulSet", "fencegate-guard"));
    assert!(
        first.contains("--init") && first.contains("$(FLOOR)") && first.contains("$(ENSEMBLE)"),
        "{first}"
    );

    let from = |policy: &str, n: usize| {
        let ingress =
            the(&guard, "NetworkPolicy", policy)["spec"]["ingress"].as_array().expect("rules").clone();
        ingress[n]["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/name"].clone()
    };
    assert_eq!(from("fencegate-guard", 0), "fencegate", "gateways, and nobody else, reach the guard");
    assert_eq!(from("payments-behind-the-guard", 0), "fencegate-guard", "and it alone reaches the service");
    // What gateways call is the guard.
    let service = &the(&guard, "Service", "payments-guard")["spec"]["ports"][0]["port"];
    assert!(read("kustomize/base/policy.yaml").contains(&format!("http://payments-guard:{service}")));
}

#[tokio::test]
async fn two_guards_have_one_store_and_one_of_them_is_always_there() {
    let guards = rendered("guards").await;
    let both = the(&guards, "Deployment", "fencegate-guard");
    assert!(guards.iter().all(|one| one["kind"] != "StatefulSet"), "one guard more, with a store of its own");
    assert_eq!(
        (both["spec"]["replicas"].as_u64(), &both["spec"]["volumeClaimTemplates"]),
        (Some(2), &Value::Null)
    );
    assert_eq!(both["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    let disruption = &the(&guards, "PodDisruptionBudget", "fencegate-guard")["spec"];
    let labels = &both["spec"]["template"]["metadata"]["labels"];
    assert_eq!(
        (disruption["maxUnavailable"].as_u64(), &disruption["selector"]["matchLabels"]),
        (Some(1), labels)
    );
    assert_eq!(the(&guards, "Service", "payments-guard")["spec"]["selector"], *labels, "one name for both");

    // What its file names is there.
    let policy = read("kustomize/guards/policy.yaml");
    let mounts = container(both)["volumeMounts"].as_array().expect("mounts");
    let database = mounts.iter().find(|one| one["name"] == "database").expect("a mount");
    for file in ["url", "ca.pem"] {
        let path = format!("{}/{file}", database["mountPath"].as_str().expect("a path"));
        assert!(policy.contains(&path), "{path}");
        assert!(read("kustomize/README.md").contains(&format!("--from-file={file}")), "{file}");
    }
    let volumes = both["spec"]["template"]["spec"]["volumes"].as_array().expect("volumes");
    let secret =
        |one: &Value| one["name"] == "database" && one["secret"]["secretName"] == "fencegate-guard-database";
    assert!(volumes.iter().any(secret), "{volumes:?}");
    // In all else it is the file of one guard.
    let of = |text: &str| -> Value {
        let mut policy: Value = serde_saphyr::from_str(text).expect("YAML");
        policy.as_object_mut().expect("fields").remove("store").expect("a store");
        policy
    };
    assert_eq!(of(&policy), of(&read("kustomize/guard/policy.yaml")));

    assert!(
        !container(both)["args"].to_string().contains("--init"),
        "a lost database would begin anew by itself"
    );
    let first = rendered("guards-first").await;
    let first = the(&first, "Deployment", "fencegate-guard");
    assert_eq!(first["spec"]["replicas"], 1, "one of them makes the store");
    let arguments = container(first)["args"].to_string();
    assert!(["--init", "$(FLOOR)", "$(ENSEMBLE)"].iter().all(|one| arguments.contains(one)), "{arguments}");
}

#[tokio::test]
async fn what_asks_for_a_token_is_scraped_with_it() {
    let monitoring = rendered("monitoring").await;
    for (folder, name) in [("base", "fencegate"), ("guard", "fencegate-guard")] {
        let resources = rendered(folder).await;
        let set = the(&resources, "StatefulSet", name);
        let labels = &set["spec"]["template"]["metadata"];
        assert!(labels["annotations"]["prometheus.io/scrape"].is_null(), "an annotation brings no token");
        let monitor = &the(&monitoring, "PodMonitor", name)["spec"];
        assert_eq!(monitor["selector"]["matchLabels"], labels["labels"], "{name}");
        let endpoint = &monitor["podMetricsEndpoints"][0];
        let ports = container(set)["ports"].as_array().expect("ports");
        assert!(ports.iter().any(|port| port["name"] == endpoint["port"]), "{name}");
        let secret = &endpoint["authorization"]["credentials"];
        let volumes = set["spec"]["template"]["spec"]["volumes"].as_array().expect("volumes");
        assert!(volumes.iter().any(|volume| volume["secret"]["secretName"] == secret["name"]), "{name}");
        let bearer = format!("/run/secrets/fencegate/admin/{}", secret["key"].as_str().expect("a key"));
        assert!(read(&format!("kustomize/{folder}/policy.yaml")).contains(&bearer), "{name}");
    }
}

/// The operator reads rules from a resource of its own.
#[test]
fn the_rules_are_those_that_are_shipped() {
    const HEAD: &str = "# The rules of ../../prometheus for the Prometheus operator. Written by a test:\n\
        # REWRITE=1 cargo test -p fencegate-tests --test promises kubernetes::the_rules\n\
        apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: fencegate\nspec:\n  groups:\n";
    let mut expected = HEAD.to_owned();
    for file in ["recording", "alerts"] {
        let text = read(&format!("prometheus/{file}.rules.yml"));
        let groups = text.split_once("groups:\n").expect("groups").1;
        for line in groups.lines() {
            let indent = if line.is_empty() { "" } else { "  " };
            expected.push_str(&format!("{indent}{line}\n"));
        }
    }
    let file = shipped("kustomize/monitoring/rules.yaml");
    if env::var_os("REWRITE").is_some() {
        fs::write(&file, &expected).expect("our own file");
    }
    assert_eq!(read("kustomize/monitoring/rules.yaml"), expected, "REWRITE=1 writes it");
}
