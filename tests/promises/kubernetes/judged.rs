//! Helm, in two versions, and the schemas of its resources accept the chart and what it renders for every example. Values
//! that would not work are refused.

use std::{collections::BTreeMap, fs};

use fencegate_testkit::scratch;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::{
    super::{
        artefacts::{assert_good, from_pypi, shipped},
        clients::{node_with_package, python_with_package, run, text},
    },
    chart::{self, ALONE, COMPARING, INIT, ONE, TWO, helm, refused, rendered, text_of},
};

/// The sets of shipped value files that are used together.
const ALL: [&[&str]; 5] = [ONE, TWO, COMPARING, ALONE, INIT];

/// Every shipped example passes `helm lint`, the schemas of its resources, and the check of its policies.
#[tokio::test]
async fn examples_pass_helm_and_schemas() {
    static MADE: OnceCell<String> = OnceCell::const_new();
    let validate = from_pypi(&MADE, "kubernetes-validate", "kubernetes-validate==1.37.0").await;
    let home = scratch::temp_dir();
    for (n, values) in ALL.into_iter().enumerate() {
        let given = chart::with_paths(values);
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        run(helm().await, &[&["lint", "--strict", &shipped("helm")], &given[..]].concat()).await;
        let text = text_of(values).await;
        assert!(!text.contains("elector: {}"), "takes everybody's pods: {text}");
        let file = home.path().join(format!("{n}.yaml"));
        fs::write(&file, text).expect("our own folder");
        run(&validate, &["--strict", &file.display().to_string()]).await;
        for map in rendered(values).await.iter().filter(|one| one["kind"] == "ConfigMap") {
            for (name, policy) in map["data"].as_object().expect("files") {
                let file = home.path().join(name);
                fs::write(&file, policy.as_str().expect("text")).expect("our own folder");
                assert_good(&file.display().to_string()).await;
            }
        }
    }
}

const CUSTOM: &str = r#"
import { createRequire } from "module";
import { pathToFileURL } from "url";
import { readFileSync } from "fs";
const [folder, file] = process.argv.slice(-2);
const require = createRequire(folder + "/");
const place = require.resolve("@kubernetes-models/prometheus-operator/package.json").replace("package.json", "");
const kinds = await import(pathToFileURL(place + "monitoring.coreos.com/v1/index.js"));
for (const one of JSON.parse(readFileSync(file))) {
    new kinds[one.kind](one).validate();
    console.log("good", one.kind, one.metadata.name);
}
"#;

/// The resources for the Prometheus operator fit its schemas.
#[tokio::test]
async fn operator_resources_fit_schemas() {
    static MADE: OnceCell<String> = OnceCell::const_new();
    const PACKAGE: &str = "@kubernetes-models/prometheus-operator";
    let modules =
        MADE.get_or_init(|| node_with_package(PACKAGE, "@kubernetes-models/prometheus-operator@6.0.0")).await;
    let folder = modules.strip_prefix("NODE_PATH=").expect("a folder");
    let home = scratch::temp_dir();
    let mut resources = rendered(TWO).await;
    resources.retain(|one| one["apiVersion"] == "monitoring.coreos.com/v1");
    let script = home.path().join("custom.mjs");
    let file = home.path().join("resources.json");
    fs::write(&script, CUSTOM).expect("our own folder");
    fs::write(&file, Value::from(resources).to_string()).expect("our own folder");
    let output = run("node", &[&script.display().to_string(), folder, &file.display().to_string()]).await;
    assert_eq!(text(&output).matches("good").count(), 3, "{output:?}");
}

/// A script that lints and renders with Helm 4, from the arguments of `helm template`.
const HELM_4: &str = r#"
import helm_python, json, sys
from helm_python import chart
def put(values, more):
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            put(values[key], value)
        else:
            values[key] = value
assert helm_python.helm_sdk_version().startswith("v4."), helm_python.helm_sdk_version()
read = {"-f": lambda file: chart.values_from_yaml(open(file).read()),
        "--set": helm_python.parse_set_string, "--set-string": helm_python.parse_set_string_values}
folder, values, words = sys.argv[1], {}, sys.argv[2:]
for flag, word in zip(words[::2], words[1::2]):
    put(values, read[flag](word))
told = chart.lint(folder, values, strict=True)
assert not told["errors"], told
with chart.Chart.load(folder) as loaded:
    loaded.validate_schema(values)
    print(json.dumps(loaded.render(values, name="fencegate", namespace="default")))
"#;

/// Helm 4 has no complaint and renders the same resources. It is used as a library, because the Helm program of the
/// other tests may be older.
#[tokio::test]
async fn helm_4_renders_same_resources() {
    static MADE: OnceCell<String> = OnceCell::const_new();
    let python = MADE.get_or_init(|| python_with_package("helm-python-sdk", "helm-python-sdk==0.2.2")).await;
    for values in ALL {
        let folder = shipped("helm");
        let values = chart::with_paths(values);
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let output = run(python, &[&["-c", HELM_4, &folder], &values[..]].concat()).await;
        let files: BTreeMap<String, String> = serde_json::from_slice(&output.stdout).expect("JSON");
        let theirs = files.iter().filter(|(name, _)| name.ends_with(".yaml"));
        let theirs = by_name(theirs.flat_map(|(_, text)| chart::resources(text)));
        let ours = by_name(rendered(&values).await);
        assert!(!ours.is_empty() && theirs == ours, "{values:?}: {theirs:#?}\n{ours:#?}");
    }
}

fn by_name(resources: impl IntoIterator<Item = Value>) -> BTreeMap<String, Value> {
    let named = |one: Value| (format!("{} {}", one["kind"], one["metadata"]["name"]), one);
    resources.into_iter().map(named).collect()
}

/// Values that would not work are refused, with the name of the value.
#[tokio::test]
async fn unusable_values_are_refused_by_name() {
    let refusals: [(&[&str], &str); 9] = [
        (&["--set", "image.repository="], "image.repository"),
        (&["--set", "zookeeper.servers="], "zookeeper.servers"),
        (&["--set", "gateway.policy.routes=null"], "routes"),
        (&["--set", "guard.service.podLabels=null"], "podLabels"),
        (&["--set", "guard.replicas=2"], "guard.replicas"),
        (&["--set", "guard.init.floor=4294967296"], "guard.init.floor"),
        (&["--set-string", "guard.init.floor=4294967296"], "guard.init.ensemble"),
        (&["--set", "gateway.enabled=false"], "guard.gateways.podLabels"),
        (&["--set", "gateway.replica=3"], "replica"),
    ];
    for (more, named) in refusals {
        let error = refused(&[ONE, more].concat()).await;
        assert!(error.contains(named), "{more:?}: {error}");
    }
}
