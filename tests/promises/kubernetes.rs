//! Helm accepts the chart, which renders what the schemas of its resources require. Its parts fit together, and what it
//! renders runs.
//!
//! Helm is the `helm` on the PATH, or else 3.10.1 from npm. The library of Helm 4 renders the same. Wrong values are
//! refused. The tests check which processes reach each other under the network policies, how Prometheus scrapes with
//! its token, and the alerts as they are shipped.
//!
//! The commands in the README of the chart run line by line. What they render runs as processes with the files,
//! ports, probes and names of the manifests. The installation serves requests through gateway and guard, and survives
//! a roll-out of all parts at once.

mod chart;
mod judged;
mod reach;
mod running;

use std::{env, fs};

use fencegate_testkit::scratch;
use serde_json::Value;

use self::{
    chart::{ALONE, COMPARING, INIT, ONE, TWO, helm, rendered},
    reach::NetworkPolicies,
};
use super::{
    artefacts::{read, shipped},
    clients::run,
};

/// The one resource of this kind and name.
fn find_resource<'a>(resources: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let named = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
    resources.iter().find(named).unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn container(set: &Value) -> &Value {
    &set["spec"]["template"]["spec"]["containers"][0]
}

fn arguments(set: &Value) -> String {
    container(set)["args"].to_string()
}

fn policy(resources: &[Value], map: &str, file: &str) -> Value {
    let text = find_resource(resources, "ConfigMap", map)["data"][file].as_str().expect("a file").to_owned();
    serde_saphyr::from_str(&text).expect("YAML")
}

/// Gateways keep their state on a volume through a roll-out, unless the values set them up without one.
#[tokio::test]
async fn gateways_keep_state_through_rollout() {
    let one = rendered(ONE).await;
    let set = find_resource(&one, "StatefulSet", "fencegate");
    assert_eq!(set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"], "state", "{set}");
    assert_eq!(policy(&one, "fencegate-policy", "policy.yaml")["state_dir"], "/var/lib/fencegate");
    find_resource(&one, "PodDisruptionBudget", "fencegate");
    for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
        assert!(container(set)[probe].is_object(), "no {probe}");
    }
    assert_eq!(container(set)["securityContext"]["readOnlyRootFilesystem"], true);
    assert!(container(set)["lifecycle"]["preStop"].is_object());
    // A label that changes with the version would replace every pod at each upgrade.
    let labels = set["spec"]["template"]["metadata"]["labels"].as_object().expect("labels");
    assert!(labels.keys().all(|label| !label.contains("version") && !label.contains("chart")), "{labels:?}");

    let without = rendered(COMPARING).await;
    let set = find_resource(&without, "Deployment", "fencegate");
    assert_eq!(set["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    assert!(policy(&without, "fencegate-policy", "policy.yaml")["state_dir"].is_null(), "it has no volume");
}

/// The ZooKeeper root is made at the installation of a release, and only on request: an operator begins an installation
/// once, and no roll-out does.
#[tokio::test]
async fn root_is_made_only_on_request() {
    for values in [ONE, TWO, COMPARING, ALONE] {
        assert!(
            rendered(values).await.iter().all(|one| one["kind"] != "Job"),
            "{values:?} begins installations"
        );
    }
    let init = rendered(INIT).await;
    let job = find_resource(&init, "Job", "fencegate-era-init");
    assert_eq!(arguments(job), r#"["era","init","-c","/etc/fencegate/policy.yaml"]"#);
    for one in [job, find_resource(&init, "ConfigMap", "fencegate-era-init")] {
        assert_eq!(one["metadata"]["annotations"]["helm.sh/hook"], "pre-install", "never by an upgrade");
    }
}

/// One guard has a store on its volume, and two guards share one in a database.
#[tokio::test]
async fn guard_store_matches_replica_count() {
    let one = rendered(ONE).await;
    let set = find_resource(&one, "StatefulSet", "fencegate-guard");
    assert_eq!(
        (&set["spec"]["replicas"], &set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"]),
        (&1.into(), &"store".into())
    );
    assert!(!arguments(set).contains("--init"), "a lost volume would begin anew by itself");
    let made = rendered(INIT).await;
    assert_eq!(
        container(find_resource(&made, "StatefulSet", "fencegate-guard"))["args"]
            .as_array()
            .map(|words| words[3..].to_vec()),
        Some(
            ["--init", "--floor", "9007199254740993", "--ensemble", "0123456789abcdef0123456789abcdef"]
                .map(Value::from)
                .to_vec()
        )
    );

    let two = rendered(TWO).await;
    let both = find_resource(&two, "Deployment", "fencegate-guard");
    assert_eq!(
        (&both["spec"]["replicas"], &both["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"]),
        (&2.into(), &0.into())
    );
    assert_eq!(find_resource(&two, "PodDisruptionBudget", "fencegate-guard")["spec"]["maxUnavailable"], 1);
    let first = rendered(
        &[TWO, &["--set-string", "guard.init.floor=7,guard.init.ensemble=0123456789abcdef0123456789abcdef"]]
            .concat(),
    )
    .await;
    assert_eq!(
        find_resource(&first, "Deployment", "fencegate-guard")["spec"]["replicas"],
        1,
        "one of them makes the store"
    );
    // In all other fields the file is that of a single guard.
    let file = |resources: &[Value]| {
        let mut file = policy(resources, "fencegate-guard-policy", "guard.yaml");
        file.as_object_mut().expect("fields").remove("store").expect("a store");
        file
    };
    assert_eq!(file(&one), file(&two));
}

/// The network policies let requests reach a service through its guard only.
#[tokio::test]
async fn service_is_reachable_through_guard_only() {
    let clients = ["--set", "networkPolicy.clients[0].podSelector.matchLabels.app=shop"];
    let reach = NetworkPolicies::of(&rendered(&[ONE, &clients].concat()).await);
    let [gateway, guard] = ["gateway", "guard"].map(|part| {
        format!("app.kubernetes.io/name=fencegate,app.kubernetes.io/instance=fencegate,app.kubernetes.io/component={part}")
    });
    let service = "app.kubernetes.io/name=payments";
    let client = "app=shop";
    let other = gateway.replace("instance=fencegate", "instance=another");
    for (from, to, port, may) in [
        (guard.as_str(), service, "8000", true),
        (&gateway, service, "8000", false),
        (client, service, "8000", false),
        (service, service, "8000", false),
        (&guard, service, "8001", false),
        (&gateway, &guard, "http", true),
        (client, &guard, "http", false),
        (service, &guard, "http", false),
        (&other, &guard, "http", false),
        (&gateway, &guard, "admin", false),
        (client, &gateway, "http", true),
        (service, &gateway, "http", false),
        (client, &gateway, "admin", false),
        (client, &gateway, "peer", false),
        (&gateway, &gateway, "peer", true),
        (client, client, "http", true),
    ] {
        assert_eq!(reach.admits("default", from, "default", to, port), may, "{from} -> {to} {port}");
    }
    assert!(reach.admits("monitoring", "app=prometheus", "default", &gateway, "admin"));
    assert!(!reach.admits("monitoring", "app=prometheus", "default", service, "8000"));

    // This release has only a guard; its service and its gateways belong to other namespaces.
    let reach = NetworkPolicies::of(&rendered(ALONE).await);
    assert!(reach.admits("default", &guard, "warehouse", "app=stock", "8000"));
    assert!(
        !reach.admits("warehouse", &guard, "warehouse", "app=stock", "8000"),
        "somebody else's pod with its labels"
    );
    assert!(!reach.admits("warehouse", "app=picker", "warehouse", "app=stock", "8000"));
    assert!(reach.admits("edge", &gateway, "default", &guard, "http"));
    assert!(!reach.admits("default", &gateway, "default", &guard, "http"), "not those of this namespace");

    // A service that compares tokens, and gateways before it.
    let reach = NetworkPolicies::of(&rendered(COMPARING).await);
    let ledger = "app.kubernetes.io/name=ledger";
    assert!(reach.admits("default", &gateway, "default", ledger, "8000"));
    assert!(!reach.admits("default", client, "default", ledger, "8000"));
    assert!(
        NetworkPolicies::of(&rendered(&[ONE, &["--set", "networkPolicy.enabled=false"]].concat()).await)
            .is_empty()
    );
}

/// A listener that requires a token is scraped with this token, and each pod once.
#[tokio::test]
async fn scraping_uses_admin_token() {
    let two = rendered(TWO).await;
    for (kind, name) in [("StatefulSet", "fencegate"), ("Deployment", "fencegate-guard")] {
        let set = find_resource(&two, kind, name);
        let monitor = &find_resource(&two, "ServiceMonitor", name);
        assert_eq!(
            monitor["metadata"]["labels"]["release"], "kube-prometheus-stack",
            "the operator selects by it"
        );
        let endpoint = &monitor["spec"]["endpoints"][0];
        // Exactly one of the selected services has the port, so no pod is scraped twice.
        let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().expect("labels");
        let services = two.iter().filter(|one| {
            one["kind"] == "Service"
                && wanted.iter().all(|(label, value)| &one["metadata"]["labels"][label] == value)
        });
        let ports = services.flat_map(|one| one["spec"]["ports"].as_array().expect("ports"));
        let scraped: Vec<&Value> = ports.filter(|port| port["name"] == endpoint["port"]).collect();
        let [port] = scraped[..] else { panic!("{name}: {scraped:?}") };
        let opened = container(set)["ports"].as_array().expect("ports");
        assert!(
            opened
                .iter()
                .any(|one| one["name"] == port["targetPort"] && one["containerPort"] == port["port"])
        );
        let secret = &endpoint["authorization"]["credentials"];
        assert_eq!(
            (secret["name"].as_str(), secret["key"].as_str()),
            (Some("fencegate-admin"), Some("token"))
        );
        let volumes = set["spec"]["template"]["spec"]["volumes"].as_array().expect("volumes");
        assert!(volumes.iter().any(|volume| volume["secret"]["secretName"] == secret["name"]), "{name}");
    }
}

/// The rules of the chart are those that are shipped. The chart reads no file outside itself, so it has copies.
#[tokio::test]
async fn chart_rules_match_shipped_rules() {
    let mut groups = Vec::new();
    for name in ["recording", "alerts"] {
        let text = read(&format!("prometheus/{name}.rules.yml"));
        let copy = shipped("helm/rules") + &format!("/{name}.rules.yml");
        if env::var_os("REWRITE").is_some() {
            fs::write(&copy, &text).expect("our own file");
        }
        assert_eq!(fs::read_to_string(&copy).expect("a copy"), text, "REWRITE=1 writes it");
        let text = text.replace("https://fencegate.example/", "https://wiki.example/fencegate/");
        let rules: Value = serde_saphyr::from_str(&text).expect("YAML");
        groups.extend(rules["groups"].as_array().expect("groups").clone());
    }
    let two = rendered(TWO).await;
    let spec = &find_resource(&two, "PrometheusRule", "fencegate")["spec"];
    assert_eq!(spec["groups"], Value::from(groups));
    let file = scratch::temp_dir();
    let path = file.path().join("rules.yml");
    fs::write(&path, spec.to_string()).expect("our own folder");
    run("promtool", &["check", "rules", &path.display().to_string()]).await;
}

/// The chart makes the secrets that its values contain, and expects the others to exist.
#[tokio::test]
async fn secrets_come_from_values_or_exist() {
    let one = rendered(ONE).await;
    assert!(one.iter().all(|one| one["kind"] != "Secret"), "made of nothing");
    let given = rendered(
        &[ONE, &["--set", "admin.token=dG9,tickets.signingKey=private,tickets.publicKeys=public"]].concat(),
    )
    .await;
    assert_eq!(
        find_resource(&given, "Secret", "fencegate-tickets")["data"]["gateway-key.json"],
        "cHJpdmF0ZQ=="
    );
    assert_eq!(find_resource(&given, "Secret", "fencegate-admin")["data"]["token"], "ZEc5");
    assert_eq!(
        find_resource(&given, "ConfigMap", "fencegate-ticket-keys")["data"]["ticket-keys.json"],
        "public"
    );
    // The guard never gets the signing key.
    for resources in [&one, &given] {
        let guard = find_resource(resources, "StatefulSet", "fencegate-guard").to_string();
        assert!(
            guard.contains("fencegate-ticket-keys") && !guard.contains("\"fencegate-tickets\""),
            "{guard}"
        );
    }
}

/// The chart has the usual values of charts: common labels and annotations, environment, further containers, topology
/// spread, a service account, names, and both IP families.
#[tokio::test]
async fn chart_keeps_common_conventions() {
    let values = r#"{"commonLabels": {"team": "pay"}, "fullnameOverride": "locks", "serviceAccountName": "locks",
        "bindAddress": "[::]", "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"], "global": {"x": 1},
        "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more"}}],
        "gateway": {"podAnnotations": {"a": "b"}, "podLabels": {"tier": "front"},
            "env": [{"name": "REGION", "value": "eu"}], "extraContainers": [{"name": "side", "image": "x"}],
            "pod": {"topologySpreadConstraints": [{"maxSkew": 2}]},
            "service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"]}},
        "guard": {"podAnnotations": {"a": "b"}, "env": [{"name": "REGION", "value": "eu"}]}}"#;
    let file = scratch::temp_dir();
    let path = file.path().join("values.json");
    fs::write(&path, values).expect("written");
    let resources = rendered(&[ONE, &["-f", path.to_str().expect("a path")]].concat()).await;
    let gateway = &find_resource(&resources, "StatefulSet", "locks")["spec"]["template"];
    assert_eq!(
        (&gateway["metadata"]["labels"]["team"], &gateway["metadata"]["labels"]["tier"]),
        (&"pay".into(), &"front".into())
    );
    assert!(gateway["metadata"]["annotations"]["checksum/policy"].is_string());
    assert_eq!(gateway["metadata"]["annotations"]["a"], "b");
    assert_eq!(gateway["spec"]["serviceAccountName"], "locks");
    assert_eq!(gateway["spec"]["topologySpreadConstraints"], serde_json::json!([{"maxSkew": 2}]));
    assert_eq!(gateway["spec"]["containers"][1]["name"], "side");
    assert!(gateway["spec"]["containers"][0]["env"].to_string().contains("REGION"));
    let guard = &find_resource(&resources, "StatefulSet", "locks-guard")["spec"]["template"];
    assert_eq!(guard["metadata"]["annotations"]["a"], "b");
    assert!(guard["spec"]["containers"][0]["env"].to_string().contains("REGION"));
    for (map, file, listener) in [
        ("locks-policy", "policy.yaml", "/listeners/public/address"),
        ("locks-guard-policy", "guard.yaml", "/listener/address"),
    ] {
        let policy = policy(&resources, map, file);
        assert_eq!(policy.pointer(listener).expect("it listens"), "[::]:8080", "{policy}");
    }
    let service = &find_resource(&resources, "Service", "locks")["spec"];
    assert_eq!(service["loadBalancerSourceRanges"][0], "10.0.0.0/8");
    assert_eq!(
        (&service["ipFamilyPolicy"], &service["ipFamilies"][0]),
        (&"SingleStack".into(), &"IPv6".into())
    );
    find_resource(&resources, "ConfigMap", "more");
    // The selectors of an installed release cannot be changed, so they have no common labels.
    let selector = &find_resource(&resources, "StatefulSet", "locks")["spec"]["selector"]["matchLabels"];
    assert_eq!(selector["team"], Value::Null, "{selector}");
}

/// A parent chart can switch this chart on and off by `enabled`.
#[tokio::test]
async fn chart_is_dependency_with_condition() {
    let parent = scratch::temp_dir();
    let charts = parent.path().join("charts");
    fs::create_dir(&charts).expect("made");
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(shipped("helm"))
        .arg(charts.join("fencegate"))
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
    let chart = format!(
        "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies:\n  - {{name: fencegate, version: {}, condition: fencegate.enabled}}\n",
        env!("CARGO_PKG_VERSION")
    );
    fs::write(parent.path().join("Chart.yaml"), chart).expect("written");
    let values: Value = serde_saphyr::from_str(&read("helm/ci/one-guard-values.yaml")).expect("YAML");
    for enabled in [true, false] {
        let mut values = values.clone();
        values["enabled"] = enabled.into();
        let values = serde_json::json!({ "fencegate": values }).to_string();
        fs::write(parent.path().join("values.yaml"), values).expect("written");
        let parent = parent.path().to_str().expect("a path");
        let output = run(helm().await, &["template", "shop", parent, "--kube-version", "1.30.0"]).await;
        let text = String::from_utf8(output.stdout).expect("text");
        assert_eq!(text.contains("kind: StatefulSet"), enabled, "{text}");
    }
}

#[test]
fn chart_version_matches_package() {
    let chart: Value = serde_saphyr::from_str(&read("helm/Chart.yaml")).expect("YAML");
    assert_eq!(
        (&chart["version"], &chart["appVersion"]),
        (&env!("CARGO_PKG_VERSION").into(), &env!("CARGO_PKG_VERSION").into())
    );
}
